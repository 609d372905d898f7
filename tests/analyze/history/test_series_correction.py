"""What the machine explains of each run of a series: by hand, when there is none, and its use."""

import itertools
import json
import math
import statistics

import msgspec
import numpy as np
import pytest
from tests.support.paths import DATA

from torchgauge.analyze.statistics.change_points import changes
from torchgauge.history.trend import series_correction
from torchgauge.records.latency.latency import PastRun

KINDS = ("matmul", "copy", "python", "dispatch", "waiting")
WEIGHTS = np.array((0.6, 0.1, 0.0, 0.2, 0.3))
LOGS = (0.1, -0.2, 0.0, 0.3, -0.1, 0.2, -0.3, 0.15)


def python(logs):
    return [{"python": math.exp(log)} for log in logs]


def corrected(values, yardsticks, versions=None):
    found = series_correction(values, yardsticks, versions or ["2.13"] * len(values))
    return [value / math.exp(log) for value, log in zip(values, found.log_ratios, strict=True)]


def machine(count, *, shift=False, step=0.0, weights=WEIGHTS, seed=0):
    """Return a series on a machine whose speed changes, that follows it by weights.

    With `shift` the machine is slower for a third of the time; `step` is in the middle.
    """
    random = np.random.default_rng(seed)
    whole = 0.08 * random.normal(size=count)
    if shift:
        slow = (np.arange(count) >= count // 3) & (np.arange(count) < 2 * count // 3)
        whole = 0.3 * whole + 0.12 * slow
    work = whole[:, None] + 0.024 * random.normal(size=(count, len(KINDS)))
    level = math.log1p(step) * (np.arange(count) >= count // 2)
    values = np.exp(work @ weights + level + 0.015 * random.normal(size=count))
    return values.tolist(), [dict(zip(KINDS, row, strict=True)) for row in np.exp(work).tolist()]


def test_by_hand_with_one_kind_of_work():
    # Times follow the work one to one. Seven others have six moves, and the ridge, worth one
    # move, leaves 6/7 of their weight. The usual speed is the median of the logs, 0.05.
    found = series_correction([math.exp(log) for log in LOGS], python(LOGS), ["2.13"] * 8)
    assert found.log_ratios == pytest.approx([6 / 7 * (log - 0.05) for log in LOGS])
    moves = [after - before for before, after in itertools.pairwise(LOGS)]
    spread = math.sqrt(sum(move**2 for move in moves) / 7 / 2)
    assert (found.before, found.between) == pytest.approx((spread, spread / 7))
    assert found.runs == 8


def test_a_run_is_corrected_by_weights_of_the_others():
    values = [math.exp(log) for log in LOGS[:-1]]
    found, other = (
        series_correction([*values, last], python(LOGS), ["2.13"] * 8) for last in (1.1, 1.3)
    )
    assert found.log_ratios[-1] == other.log_ratios[-1]
    assert found.log_ratios[0] != other.log_ratios[0]


def test_what_was_never_seen_to_help_is_not_used():
    for seed in range(20):
        values, yardsticks = machine(30, weights=np.zeros(5), seed=seed)
        assert series_correction(values, yardsticks, ["2.13"] * 30) is None
    assert series_correction([1.0] * 8, python(LOGS), ["2.13"] * 8) is None


def test_six_other_runs_with_all_kinds_of_the_newest_are_needed():
    values = [math.exp(log) for log in LOGS]
    whole = ["2.13"] * 8
    one_less = [{}, *python(LOGS[1:])]
    found = series_correction(values, one_less, whole)
    assert found.log_ratios[0] is None
    assert None not in found.log_ratios[1:]
    assert found.runs == 7
    two_less = [{}, {"copy": 1.0}, *python(LOGS[2:])]
    assert series_correction(values, two_less, whole) is None
    assert series_correction(values, [{}] * 8, whole) is None


def test_another_version_of_torch_is_no_other_speed():
    # The reference work of a newer torch is twice as fast, the target's step of 10 % is its own.
    logs = [*LOGS, *(log - math.log(2) for log in LOGS)]
    values = [math.exp(log) for log in LOGS] + [1.1 * math.exp(log) for log in LOGS]
    old_new = ["2.12"] * 8 + ["2.13"] * 8
    after = corrected(values, python(logs), old_new)
    step = statistics.median(after[8:]) / statistics.median(after[:8])
    assert step == pytest.approx(1.1, rel=0.001)
    found = series_correction(values[:10], python(logs[:10]), old_new[:10])
    assert found.log_ratios[8:] == (None, None)
    assert found.runs == 8


def test_a_slower_machine_is_no_change_and_a_step_of_a_tenth_is_found():
    raw_alarms = alarms = found = held = 0
    for seed in range(20):
        values, yardsticks = machine(60, shift=True, seed=seed)
        raw_alarms += bool(changes(values))
        alarms += bool(changes(corrected(values, yardsticks)))
        values, yardsticks = machine(60, shift=True, step=0.1, seed=100 + seed)
        steps = changes(corrected(values, yardsticks))
        found += len(steps) == 1 and abs(steps[0].start - 30) <= 2
        held += len(steps) == 1 and steps[0].interval.low <= 0.1 <= steps[0].interval.high
    assert raw_alarms >= 15
    assert alarms == 0
    assert found >= 19
    assert held >= 16


def test_runs_of_a_busy_host_lie_nearer_together():
    """Seventeen to eighteen runs of six models, one thread, on two cores that others shared."""
    text = (DATA / "past_runs_busy.json").read_text()
    past = msgspec.convert(json.loads(text), list[PastRun])
    factors = []
    for target in dict.fromkeys(run.target for run in past):
        own = [run for run in past if run.target == target]
        values = [statistics.median(run.medians) for run in own]
        found = series_correction(values, [run.yardstick for run in own], [""] * len(own))
        factors.append(1.0 if found is None else found.before / found.between)
    assert len(factors) == 6
    assert statistics.median(factors) >= 2
