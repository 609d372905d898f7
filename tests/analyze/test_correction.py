"""What the machine explains of the difference of two runs: weights, and when there are none."""

import json
import math
import statistics
from pathlib import Path

import msgspec
import numpy as np
import pytest

from torchgauge.analyze.correction import correction
from torchgauge.model.past_run import PastRun

KINDS = ("matmul", "copy", "python", "dispatch", "waiting")
BOUND = {
    "mlp": (0.0, 0.0, 0.5, 0.6, 0.0),
    "conv": (0.8, 0.1, 0.0, 0.0, 0.9),
    "lstm": (0.2, 0.0, 0.2, 0.6, 0.1),
}


def run(target, log_work, log_time):
    work = dict(zip(KINDS, map(float, np.exp(log_work)), strict=True))
    return PastRun(target=target, created="", medians=(math.exp(log_time),) * 3, yardstick=work)


def host(runs, noise=0.02, spread=0.1, seed=0):
    """Return runs of a host whose speed changes, of targets that follow it by their weights."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        for target, weights in BOUND.items():
            # Most of it is the whole machine's.
            work = spread * random.normal() + 0.3 * spread * random.normal(size=len(KINDS))
            found.append(run(target, work, float(work @ weights + noise * random.normal())))
    return found


def test_by_hand_with_one_kind_of_work():
    # Times follow the work one to one; a ridge worth one run leaves 8/9 of the weight of eight.
    logs = [0.1 * number for number in range(-4, 5)]
    past = [
        PastRun(
            target="a",
            created="",
            medians=(math.exp(log),),
            yardstick={"python": math.exp(log)},
        )
        for log in logs
    ]
    old, new = past[4], run("a", (0.0,) * 5, 0.31)
    new = PastRun(target="a", created="", medians=new.medians, yardstick={"python": math.exp(0.3)})
    found = correction(old, new, [*past[:4], *past[5:]])
    assert found.log_ratio == pytest.approx(0.3 * 8 / 9)
    assert found.runs == 8
    assert found.between < 0.6 * found.before


def test_a_hosts_changes_of_speed_are_taken_out():
    past = host(17)
    old, new, *_ = [one for one in past if one.target == "mlp"]
    found = correction(old, new, past)
    assert found.between < 0.5 * found.before
    raw = math.log(new.medians[0] / old.medians[0])
    assert abs(raw - found.log_ratio) <= 4 * found.between


def test_what_was_never_seen_to_help_is_not_used():
    random = np.random.default_rng(3)
    past = [run("mlp", 0.1 * random.normal(size=5), 0.1 * random.normal()) for _ in range(20)]
    assert correction(past[0], past[1], past) is None


def test_the_runs_compared_are_not_learnt_from():
    past = host(12)
    own = [one for one in past if one.target == "conv"]
    found = correction(own[0], own[1], past)
    assert found == correction(own[0], own[1], [one for one in past if one not in own[:2]])
    assert found.runs == 10


def test_six_runs_with_all_kinds_of_work_are_needed():
    past = host(12)
    own = [one for one in past if one.target == "conv"]
    rest = [one for one in past if one.target != "conv"]
    old, new, *others = own
    assert correction(old, new, rest + others[:6]) is not None
    assert correction(old, new, rest + others[:5]) is None
    plain = PastRun(target="conv", created="", medians=(1.0,))
    assert correction(plain, new, past) is None
    assert correction(old, new, rest + others[:5] + [plain]) is None


def test_work_that_moved_further_than_ever_leaves_more_open():
    past = host(16)
    old, *others = [one for one in past if one.target == "conv"]
    rest = [one for one in past if one.target != "conv"]
    near, far = (run("conv", (0, shift, 0, 0, 0), 0.05) for shift in (0.05, 2.0))
    usual, unusual = (correction(old, new, rest + others) for new in (near, far))
    assert unusual.between > 2 * usual.between


def test_simulated_runs_of_one_build_rarely_differ_and_a_tenth_more_is_found():
    from torchgauge.analyze.stored import corrected

    alarms = found = raw_found = trials = 0
    for seed in range(40):
        past = host(20, noise=0.01, seed=seed)
        own = [one for one in past if one.target == "conv"]
        old, new = own[-2:]
        known = correction(old, new, past)
        assert known is not None
        for factor in (1.0, 1.1):
            times = tuple(factor * time for time in new.medians)
            interval = corrected(old.medians, times, known).interval(0.99)
            if factor == 1.0:
                alarms += not interval.low <= 0 <= interval.high
            else:
                found += interval.low > 0
                raw_found += math.log(times[0] / old.medians[0]) > 2.9 * math.sqrt(2) * known.before
        trials += 1
    assert alarms <= 1
    assert found >= 0.6 * trials
    assert raw_found <= 0.2 * trials


def test_on_a_busy_host_weights_from_other_runs_alone_leave_half_the_spread():
    """Seventeen to eighteen runs of six models, one thread, on two cores that others shared."""
    text = (Path(__file__).parents[1] / "data" / "past_runs_busy.json").read_text()
    past = msgspec.convert(json.loads(text), list[PastRun])
    factors = []
    for target in dict.fromkeys(one.target for one in past):
        old, new = [one for one in past if one.target == target][:2]
        found = correction(old, new, past)
        factors.append(found.before / found.between)
    assert len(factors) == 6
    assert statistics.median(factors) >= 2
