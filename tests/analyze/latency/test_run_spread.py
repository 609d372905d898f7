"""The spread of runs on a host: by hand, and the coverage of intervals that rest on it."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from torchgauge.analyze.latency.run_spread import past_target, run_spread
from torchgauge.records.latency.latency import PastRun


def runs(logs, target="mlp", busy=False, spread=0.0):
    """Return runs of two processes each, whose mean log medians are `logs`."""
    return [
        PastRun(
            target=target,
            created="",
            medians=(math.exp(log - spread), math.exp(log + spread)),
            busy=busy,
        )
        for log in logs
    ]


def test_by_hand():
    # Means 0, 0.2, 0.4: variance 0.04. Processes 0.1 either side: 0.02 of each run, 3 degrees.
    found = run_spread(runs([0.0, 0.2, 0.4], spread=0.1), "mlp", busy=None)
    assert found.between == pytest.approx(0.2)
    assert found.runs == 2
    assert found.within == pytest.approx(math.sqrt(0.02))
    assert found.within_freedom == 3


def test_few_runs_are_drawn_towards_the_hosts_other_targets():
    other = runs([-0.3, 0.3] * 5, "lstm")  # variance 0.1, 9 degrees: worth 4
    own = runs([0.0, 0.2, 0.4])
    assert run_spread(other, "mlp", busy=None).between == pytest.approx(math.sqrt(0.1))
    assert run_spread(other, "mlp", busy=None).runs == 4
    assert run_spread(other + own[:1], "mlp", busy=None).runs == 4
    found = run_spread(other + own, "mlp", busy=None)
    assert found.between == pytest.approx(math.sqrt((2 * 0.04 + 4 * 0.1) / 6))
    assert found.runs == 6
    many = runs([-0.1, 0.1] * 20)  # squares of 0.4 over 39 degrees
    found = run_spread(other + many, "mlp", busy=None)
    assert found.between == pytest.approx(math.sqrt((0.4 + 4 * 0.1) / 43))


def test_nothing_is_known_of_fewer_than_two_runs():
    assert run_spread([], "mlp", busy=None) is None
    assert run_spread(runs([0.0]) + runs([0.0], "lstm"), "mlp", busy=None) is None
    assert run_spread(runs([0.0, 0.0]), "mlp", busy=None).between == 0.0
    alone = [PastRun(target="mlp", created="", medians=(one,)) for one in (1.0, 1.1)]
    assert run_spread(alone, "mlp", busy=None).within is None
    unusable = [PastRun(target="mlp", created="", medians=one) for one in ((), (0.0, 1.0))]
    assert run_spread(unusable, "mlp", busy=None) is None


def test_an_outlier_and_a_level_shift_are_no_spread():
    steady = [0.01 * math.sin(37 * number) for number in range(20)]
    plain = run_spread(runs(steady), "mlp", busy=None).between
    shifted = [log + 0.5 * (number >= 8) for number, log in enumerate(steady)]
    assert run_spread(runs(shifted), "mlp", busy=None).between == pytest.approx(plain, rel=0.1)
    spoilt = [*steady[:10], 2.0, *steady[11:]]
    assert (
        run_spread(runs(spoilt), "mlp", busy=None).between < 2.5 * plain
    )  # taken whole it is 60 times
    # Three runs are too few to tell an outlier from spread.
    assert run_spread(runs([0.0, 0.0, 0.6]), "mlp", busy=None).between == pytest.approx(0.346, 0.01)


def test_a_busy_run_is_judged_by_busy_ones_a_quiet_one_by_quiet_ones():
    quiet, busy = runs([0.0, 0.02]), runs([0.0, 0.4], busy=True)
    of_quiet = pytest.approx(0.02 / math.sqrt(2))
    assert run_spread(quiet + busy, "mlp", busy=False).between == of_quiet
    assert run_spread(quiet + busy, "mlp", busy=True).between == pytest.approx(0.4 / math.sqrt(2))
    assert run_spread(quiet, "mlp", busy=True) is None
    assert run_spread(busy + quiet[:1], "mlp", busy=False).runs == 2


NOISES = {
    "normal": lambda random, size: random.normal(size=size),
    "Student, 3 degrees": lambda random, size: random.standard_t(3, size=size),
    "spikes": lambda random, size: (
        random.normal(size=size) * np.where(random.random(size) < 0.1, 5, 1)
    ),
    "skewed": lambda random, size: random.exponential(size=size) - math.log(2),
    "minutes": lambda random, size: _wandering(random.normal(size=size)),
}


def _wandering(noise):
    out = noise.copy()
    for at in range(1, out.shape[-1]):
        out[..., at] = 0.4 * out[..., at - 1] + math.sqrt(1 - 0.16) * noise[..., at]
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("past", [5, 12])
def test_an_interval_of_a_new_run_by_the_spread_of_past_ones_holds(noise, past):
    random = np.random.default_rng(past)
    hits = 0
    trials = 200
    for draws in NOISES[noise](random, (trials, past + 1)):
        spread = run_spread(runs(0.1 * draws[:past]), "mlp", busy=None)
        reach = stdtrit(spread.runs, 0.975) * spread.between
        hits += abs(0.1 * draws[-1]) <= reach
    assert hits / trials >= 0.9


def test_a_target_is_named_by_what_decides_its_time():
    from tests.support.records import profile

    record = profile()
    name = past_target(record.target, record.environment)
    torch = record.environment.software.torch
    threads = record.environment.settings.threads
    assert name == f"model.py:make 0=2x3x8x8 cpu fp32 inference threads={threads} torch={torch}"
    more = past_target(
        record.target, record.environment, parameters=7, staged=True, cold_cache=True
    )
    assert " parameters=7 staged cold " in more
