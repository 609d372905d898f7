"""The statistics of latency against noise whose truth is known, through the whole loop."""

import importlib.util
import sys

import pytest
from tests.support.paths import BENCHMARKS

PATH = BENCHMARKS / "latency_simulation.py"


def _load():
    spec = importlib.util.spec_from_file_location("latency_simulation", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


simulation = _load()


def covered(found):
    return sum(outcome.covered for outcome in found) / len(found)


@pytest.mark.slow
@pytest.mark.parametrize("row", simulation.coverage_rows()[::2], ids=lambda row: row.name)
def test_interval_covers_the_true_median(row):
    """Of 200 runs at 95 %, 90 % or fewer come once in 500 tests."""
    found = simulation.outcomes(row, 200)
    assert covered(found) >= 0.90
    assert simulation.share(found, *simulation.STEP_WARNINGS) <= 0.05
    assert not any(outcome.p99_wrong for outcome in found)


@pytest.mark.slow
@pytest.mark.parametrize("row", simulation.warmup_rows()[::2], ids=lambda row: row.name)
def test_no_warmup_sample_is_among_the_steady_ones(row):
    assert not any(outcome.warmup_left_in for outcome in simulation.outcomes(row, 100))


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [row for row in simulation.step_rows() if "200 of 400" in row.name],
    ids=lambda row: row.name,
)
def test_step_in_mid_run_is_flagged(row):
    assert simulation.share(simulation.outcomes(row, 50), *simulation.STEP_WARNINGS) >= 0.85


def test_shares_can_fail():
    """A machine that steps is not covered, and one that does not is not flagged."""
    stepping = next(row for row in simulation.step_rows() if "iid, step at 200 of 400" in row.name)
    assert covered(simulation.outcomes(stepping, 20)) < 0.5
    quiet = simulation.coverage_rows()[0]
    assert simulation.share(simulation.outcomes(quiet, 20), "not-steady") < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("row", simulation.coverage_rows(), ids=lambda row: row.name)
def test_coverage_in_full(row):
    found = simulation.outcomes(row, 2000)
    assert 0.93 <= covered(found) <= 0.985
    assert simulation.share(found, *simulation.STEP_WARNINGS) <= 0.03


@pytest.mark.slow
@pytest.mark.parametrize("row", simulation.warmup_rows(), ids=lambda row: row.name)
def test_warmup_in_full(row):
    assert not any(outcome.warmup_left_in for outcome in simulation.outcomes(row, 2000))
