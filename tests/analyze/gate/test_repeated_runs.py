"""A generation against several runs of the baseline, whose spread is the noise."""

import math
import statistics

import msgspec
import pytest
from tests.support import generations

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.records.record import MeasurementWarning

SCATTER = (1.02, 0.98, 1.01, 0.99, 1.03, 0.97)
LOADED = MeasurementWarning(id="other-load", message="Others took 50 %.", probe="generation")


def run(factor, minute, **parts):
    """A run of one shape, `factor` slower than the formula, recorded at a minute."""
    record = generations.single(slower=factor)
    created = f"2026-01-01T03:{minute:02}:00+00:00"
    environment = msgspec.structs.replace(record.environment, created=created)
    return msgspec.structs.replace(record, **{"environment": environment, **parts})


BASELINE = [run(factor, minute) for minute, factor in enumerate(SCATTER)]


def rulings(verdict):
    return {r.metric: r for r in verdict.rulings if r.metric in ("ttft", "tpot", "tokens")}


def test_a_run_like_the_others_passes():
    verdict = tg.gate(BASELINE, run(1.01, 7))
    assert verdict.outcome == "pass"
    assert {ruling.outcome for ruling in rulings(verdict).values()} == {"pass"}


def test_a_slower_run_fails_in_every_metric():
    verdict = tg.gate(BASELINE, run(1.3, 7))
    assert {ruling.outcome for ruling in rulings(verdict).values()} == {"fail"}
    tpot = rulings(verdict)["tpot"]
    logs = [math.log(factor) for factor in SCATTER]
    assert tpot.change == pytest.approx(1.3 / math.exp(statistics.fmean(logs)) - 1)
    error = statistics.stdev(logs) * math.sqrt(1 + 1 / 6)
    reach = math.log1p(tpot.interval.high) - math.log1p(tpot.change)
    assert reach == pytest.approx(2.7764 * error, rel=1e-4)  # Student's t, 4 degrees of freedom
    assert "one run against 6" in tpot.method


def test_runs_that_scatter_decide_nothing():
    runs = [run(factor**10, minute) for minute, factor in enumerate(SCATTER)]
    ruling = rulings(tg.gate(runs, run(1.3, 7)))["tpot"]
    assert ruling.outcome == "inconclusive"
    assert "6 runs of the baseline scatter by 2" in ruling.reason


def test_a_run_of_another_day_has_the_assumed_floor_with_it():
    late = msgspec.structs.replace(run(1.2, 7).environment, created="2026-01-09T03:00:00+00:00")
    ruling = rulings(tg.gate(BASELINE, run(1.2, 7, environment=late)))["tpot"]
    assert rulings(tg.gate(BASELINE, run(1.2, 7)))["tpot"].outcome == "fail"
    assert ruling.outcome == "inconclusive"
    assert "recorded further from" in ruling.reason


def test_a_run_beside_other_work_proves_nothing():
    slow = run(1.5, 7, warnings=(LOADED,))
    ruling = rulings(tg.gate(BASELINE, slow))["tpot"]
    assert (ruling.outcome, "other processes" in ruling.reason) == ("inconclusive", True)
    loaded = [run(f, minute, warnings=(LOADED,)) for minute, f in enumerate(SCATTER)]
    assert rulings(tg.gate(loaded, slow))["tpot"].outcome == "fail"


def test_two_runs_are_no_spread():
    ruling = rulings(tg.gate(BASELINE[:2], run(1.01, 7)))["tpot"]
    assert "one run against" not in ruling.method


@pytest.mark.parametrize("current", [BASELINE[0], run(1.01, 7)])
def test_a_run_given_twice_is_refused(current):
    runs = BASELINE if current is BASELINE[0] else [*BASELINE, BASELINE[2]]
    with pytest.raises(InputError, match="given twice"):
        tg.gate(runs, current)


def test_what_is_no_generation_is_refused():
    with pytest.raises(InputError) as raised:
        tg.gate(BASELINE, BASELINE[0].profile())
    assert raised.value.id == "baseline-runs"


def test_files_are_named_on_the_command_line(tmp_path, capsys):
    from torchgauge.cli.main import main

    paths = [record.save(tmp_path / f"{index}.json") for index, record in enumerate(BASELINE)]
    current = run(1.3, 7).save(tmp_path / "current.json")
    options = [part for path in paths for part in ("--baseline", str(path))]
    assert main(["gate", *options, str(current)]) == 3
    shown = capsys.readouterr().out
    assert "one run against 6" in shown
    assert "6 runs" in shown


def test_calls_that_scatter_more_than_the_runs_count_with_their_own_error():
    steady = run(1.3, 7)
    calls = [
        generations.call(factor=1.3 * factor) for factor in (1.4, 0.6, 1.0, 1.7)
    ]  # the first is warm-up
    scattered = msgspec.structs.replace(steady, cells=(generations.of_calls(calls, 1),))
    assert rulings(tg.gate(BASELINE, steady))["tpot"].outcome == "fail"
    assert rulings(tg.gate(BASELINE, scattered))["tpot"].outcome == "inconclusive"
