"""The search of a capacity, on a queue whose capacity is computed."""

import math

import pytest
from tests.support.simulated_loads import SimulatedLoad, lindley

from torchgauge.analyze.serving.capacity_fit import GoalCount, fitted_rate
from torchgauge.analyze.serving.rate_search import RateSearch, capacity_of_levels


def searched(load: SimulatedLoad, seconds: float, *, seed: int, highest: float = math.inf):
    search = RateSearch(0.6 / load.mean, highest=highest, seed=seed)
    stages = []
    while (trial := search.next()) is not None:
        search.add(trial, load.level(trial.rate, seconds * trial.length, trial.seed))
        stages.append(trial.stage)
    return search.capacity(), stages


def test_lindleys_recursion_by_hand():
    finished = lindley([0.0, 1.0, 1.5, 9.0], [2.0, 1.0, 1.0, 3.0])
    assert finished.tolist() == [2.0, 3.0, 4.0, 12.0]


@pytest.mark.parametrize(
    ("seed", "seconds", "within"),
    [(0, 6.0, 0.08), pytest.param(4000, 30.0, 0.04, marks=pytest.mark.thorough)],
)
def test_the_capacity_of_a_simulated_server_is_found(seed, seconds, within):
    load = SimulatedLoad("p95<20ms", kind="exponential")
    truth = load.capacity(0.95)
    capacity, stages = searched(load, seconds, seed=seed)
    assert capacity.interval.low <= truth <= capacity.interval.high
    assert capacity.rate == capacity.interval.low
    assert truth * (1 - within) < capacity.rate <= truth
    assert stages[-1] == "confirm"
    assert stages == sorted(stages, key=["bracket", "repeat", "confirm"].index)


def test_a_goal_that_every_rate_meets_is_above_all_tried():
    capacity, stages = searched(SimulatedLoad("p50<10s"), 2.0, seed=0, highest=100.0)
    assert capacity.above_all_tried
    assert capacity.rate == 100.0
    assert capacity.interval is None
    assert set(stages) == {"bracket"}


def test_a_goal_that_no_rate_meets_has_no_capacity():
    capacity, stages = searched(SimulatedLoad("p50<1ms"), 2.0, seed=0)
    assert capacity.rate is None
    assert len(stages) < 40


def test_the_fitted_rate_is_the_one_at_which_the_shares_meet_the_target():
    # Shares of exactly 1 % × (rate/100)³: met at 100, with no scatter at all.
    counts = [
        GoalCount(rate, 10**6, 10**4 * (rate / 100) ** 3, 0.01) for rate in (90, 95, 100, 105, 110)
    ]
    rate, interval = fitted_rate(counts)
    assert rate == pytest.approx(100)
    assert interval.low == pytest.approx(100, rel=1e-3)
    assert interval.high == pytest.approx(100, rel=1e-3)
    assert fitted_rate(counts[:4]) is None


def test_shares_that_do_not_grow_with_the_rate_show_no_capacity():
    counts = [
        GoalCount(rate, 1000, over, 0.01)
        for rate, over in zip(range(90, 96), [9, 12] * 3, strict=True)
    ]
    assert fitted_rate(counts[::-1]) is None or fitted_rate(counts)[1].high / 95 > 1.02


def test_of_given_rates_the_capacity_is_between_the_last_met_and_the_first_missed():
    load = SimulatedLoad("p90<20ms", mean=0.002)
    levels = [load.level(rate, 30.0, 1) for rate in (600, 100, 200)]
    assert [level.verdict for level in levels] == ["missed", "met", "met"]
    capacity = capacity_of_levels(levels)
    assert (capacity.rate, capacity.interval.low, capacity.interval.high) == (200, 200, 600)
    assert not capacity.above_all_tried
    assert capacity_of_levels(levels[1:]).above_all_tried
