"""The search of a capacity, on a queue whose capacity is computed."""

import dataclasses
import math

import msgspec
import pytest
from tests.support.simulated_loads import SimulatedLoad, lindley

from torchgauge.analyze.serving.left_out import (
    GoalCount,
    capacity_of_levels,
    fitted_line,
    goal_count,
)
from torchgauge.analyze.serving.rate_search import MOST_LENGTH, MOST_LEVELS, RateSearch
from torchgauge.analyze.serving.rate_trials import Trial, typical
from torchgauge.records.serving.level import ClientLoad
from torchgauge.serving.load import PAUSE, PROBE_SECONDS


def searched(load: SimulatedLoad, seconds: float, *, seed: int, mend=None, **options):
    """Search on a simulated load; `mend` changes the levels as a client or a server might."""

    def due(trial):
        return load.latencies(trial.rate, seconds * trial.length, trial.seed)[0]

    search = RateSearch(1 / load.mean, due, seed=seed, **options)
    trials = []
    while (trial := search.next()) is not None:
        level = load.level(trial.rate, seconds * trial.length, trial.seed)
        search.add(trial, level if mend is None else mend(level, len(trials)))
        trials.append(trial)
    return search.capacity(), trials


def test_lindleys_recursion_by_hand():
    finished = lindley([0.0, 1.0, 1.5, 9.0], [2.0, 1.0, 1.0, 3.0])
    assert finished.tolist() == [2.0, 3.0, 4.0, 12.0]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(4000, marks=pytest.mark.thorough)])
def test_the_capacity_of_a_simulated_server_is_found_in_few_levels(seed):
    load = SimulatedLoad("p95<20ms", kind="exponential")
    truth = 500 - math.log(20) / 0.020  # of M/M/1: μ − ln(1/share)/limit
    capacity, trials = searched(load, 40.0, seed=seed)
    assert capacity.interval.low <= truth <= capacity.interval.high
    assert capacity.rate == capacity.interval.low
    assert truth * 0.94 < capacity.rate <= truth
    stages = [trial.stage for trial in trials]
    assert stages[-1] == "confirm"
    assert stages == sorted(stages, key=["bracket", "repeat", "confirm"].index)
    assert len(trials) <= MOST_LEVELS
    assert sum(trial.length for trial in trials) <= MOST_LEVELS + 1
    assert len({trial.seed for trial in trials}) == len(trials)


@pytest.mark.thorough
def test_lengths_that_the_search_chooses_stay_within_its_time():
    quick = SimulatedLoad("p95<1ms", mean=0.0002)  # M/D/1: little is needed
    precise, trials = searched(quick, 10.0, seed=0, usual_seconds=10.0)
    assert precise.interval.high / precise.interval.low < 1.04
    assert sum(trial.length for trial in trials) < 0.8 * MOST_LENGTH
    slow = SimulatedLoad("p95<200ms", mean=0.02, kind="exponential")
    rough, trials = searched(slow, 10.0, seed=0, usual_seconds=10.0)
    assert sum(trial.length for trial in trials) <= MOST_LENGTH
    assert rough.interval is None or rough.interval.high / rough.interval.low > 1.04


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 10))]
)
def test_the_knee_of_a_single_queue_is_found_in_two_minutes(seed):
    """10.5 ms a request, p95 below 60 ms: of M/D/1 the wait is below 49.5 ms in 95 % at 69.75/s."""

    def within(rate):  # Erlang's formula
        loads = [(j, rate * (j * 0.0105 - 0.0495)) for j in range(5)]
        terms = (load**j / math.factorial(j) * math.exp(-load) for j, load in loads)
        return (1 - rate * 0.0105) * sum(terms)

    assert within(69.75) == pytest.approx(0.95, abs=1e-4)
    load = SimulatedLoad("p95<60ms", mean=0.0105)
    capacity, trials = searched(load, 10.0, seed=10_000 * seed, usual_seconds=10.0)
    seconds = PROBE_SECONDS + sum(10 * trial.length + PAUSE for trial in trials)
    assert seconds <= 120
    assert capacity.interval.low <= 69.75 <= capacity.interval.high
    assert capacity.rate == pytest.approx(69.75, rel=0.05)


def test_a_typical_schedule_has_as_many_long_waits_as_one_of_any_length():
    load = SimulatedLoad("p95<60ms", mean=0.0105)

    def due(trial):
        return load.latencies(trial.rate, 7.5 * trial.length, trial.seed)[0]

    def share(trial):
        latencies = load.latencies(trial.rate, 7.5, trial.seed)[1]
        return float((latencies[latencies.size // 10 :] > 0.06).mean())

    first = [Trial(69.75, 10_000 * number) for number in range(8)]
    chosen = [typical(trial, due, 95.2, 69.75, [0.05]) for trial in first]
    assert {trial.rate for trial in chosen} == {69.75}
    assert [share(trial) for trial in chosen] == pytest.approx([0.05] * 8, rel=0.2)
    assert max(share(trial) for trial in first) > 3 * min(share(trial) for trial in first)


def test_levels_that_are_too_short_have_no_interval_and_say_how_long_they_must_be():
    load = SimulatedLoad("p95<60ms", kind="exponential")  # its capacity is at 90 %
    capacity, _ = searched(load, 2.0, seed=0)
    assert capacity.interval is None
    assert "times longer levels" in capacity.reason


def test_a_rate_whose_level_is_unclear_is_not_a_capacity():
    load = SimulatedLoad("p95<60ms", kind="exponential")

    def unclear(level, _):
        results = [msgspec.structs.replace(goal, verdict="unclear") for goal in level.goals]
        return msgspec.structs.replace(level, goals=tuple(results))

    capacity, trials = searched(load, 2.0, seed=0, mend=unclear)
    assert capacity.rate is None
    assert capacity.interval is None
    assert not capacity.above_all_tried
    assert "the figures meet the goals, and their intervals do not" in capacity.reason

    def met_below(level, number):
        return level if trials[number].rate < 300 else unclear(level, number)

    capacity, again = searched(load, 2.0, seed=0, mend=met_below)
    met = [
        trial.rate
        for trial in again
        if trial.rate < 300
        and load.level(trial.rate, 2.0 * trial.length, trial.seed).verdict == "met"
    ]
    assert capacity.rate == max(met, default=None)


@pytest.mark.thorough
def test_levels_of_a_late_client_are_left_out():
    load = SimulatedLoad("p95<20ms", kind="exponential")
    late = ClientLoad(lateness_p99=0.1, limited=True)

    def mend(level, number):
        # Its latencies would show half the capacity.
        slower = load.slower(level, 0.030)
        return msgspec.structs.replace(slower, client=late) if number % 3 == 1 else level

    capacity, trials = searched(load, 40.0, seed=0, mend=mend)
    assert capacity.rate == pytest.approx(500 - math.log(20) / 0.020, rel=0.08)
    assert f"since the client was late: {len(trials[1::3])}." in capacity.reason


def test_a_client_that_is_always_late_ends_the_search():
    load = SimulatedLoad("p95<20ms", kind="exponential")
    late = ClientLoad(lateness_p99=0.1, limited=True)

    def mend(level, _):
        return msgspec.structs.replace(level, client=late)

    capacity, trials = searched(load, 2.0, seed=0, mend=mend)
    assert len(trials) == 4
    assert capacity.rate is None
    assert not capacity.above_all_tried
    assert "too busy" in capacity.reason


@pytest.mark.thorough
def test_a_client_that_is_late_for_a_while_is_asked_for_what_it_could_send_again():
    load = SimulatedLoad("p95<20ms", kind="exponential")
    late = ClientLoad(lateness_p99=0.1, limited=True)

    def mend(level, number):
        return msgspec.structs.replace(level, client=late) if number in (6, 7) else level

    capacity, trials = searched(load, 40.0, seed=0, mend=mend)
    assert capacity.interval is not None
    assert max(trial.rate for trial in trials[8:]) > 500 - math.log(20) / 0.020


def test_a_client_that_is_late_by_little_of_the_limit_is_no_reason_to_leave_levels_out():
    load = SimulatedLoad("p95<20ms", kind="exponential")
    late = ClientLoad(lateness_p99=0.0015, limited=True)

    def mend(level, _):
        return msgspec.structs.replace(level, client=late)

    capacity, _ = searched(load, 2.0, seed=1000, mend=mend)
    assert "left out" not in capacity.reason


@pytest.mark.thorough
def test_a_first_level_in_which_the_server_warms_up_is_tried_again():
    load = SimulatedLoad("p95<20ms", kind="exponential")

    def mend(level, number):
        return level if number else load.slower(level, 0.050, share=0.4)

    capacity, trials = searched(load, 40.0, seed=0, mend=mend)
    assert trials[0].rate == trials[1].rate
    assert "warm-up: 1." in capacity.reason


def test_a_goal_that_every_rate_meets_is_above_all_tried():
    capacity, trials = searched(SimulatedLoad("p50<10s"), 2.0, seed=0, highest=100.0)
    assert capacity.above_all_tried
    assert capacity.searched
    assert capacity.rate == 100.0
    assert capacity.interval is None
    assert {trial.stage for trial in trials} == {"bracket"}


def test_a_goal_that_no_rate_meets_has_no_capacity():
    capacity, trials = searched(SimulatedLoad("p50<1ms"), 2.0, seed=0)
    assert capacity.rate is None
    assert len(trials) <= MOST_LEVELS


@pytest.mark.parametrize("goals", ["tpot_p99<20ms", "p95<20ms itl_mean<20ms"])
def test_a_goal_on_what_no_answer_has_ends_the_search(goals):
    capacity, trials = searched(SimulatedLoad(goals), 2.0, seed=0)
    assert len(trials) == 1
    assert capacity.rate is None
    assert "no request streamed contents" in capacity.reason


def test_the_fitted_rate_is_the_one_at_which_the_shares_meet_the_target():
    # Shares of exactly 1 % × e^(3·(rate/100 − 1)): met at 100, with no scatter at all.
    counts = [
        GoalCount(rate, 10**6, 10**4 * math.exp(3 * (rate / 100 - 1)), 0.01)
        for rate in (90, 95, 98, 100, 105, 110)
    ]
    line = fitted_line(counts)
    assert line.rate == pytest.approx(100)
    assert line.slope == pytest.approx(3)
    assert line.interval.low == pytest.approx(100, rel=1e-3)
    assert line.interval.high == pytest.approx(100, rel=1e-3)
    assert fitted_line(counts[:5]).interval is None
    assert fitted_line(counts[:2]) is None
    dependent = [dataclasses.replace(count, correlation=10**5) for count in counts]
    assert fitted_line(dependent).interval is None


def test_levels_are_fitted_over_the_requests_that_were_due():
    load = SimulatedLoad("p95<20ms")
    level = load.level(100.0, 4.0, seed=3)
    begin, end = level.window
    due = sum(begin <= time < end for time in level.requests.scheduled)
    assert goal_count(level, level.goals[0].goal).rate == due / (end - begin) != 100.0


def test_a_wide_interval_says_how_much_longer_levels_have_to_be():
    capacity, _ = searched(SimulatedLoad("p95<20ms", kind="exponential"), 15.0, seed=0)
    reach = (capacity.interval.high / capacity.interval.low - 1) / (
        capacity.interval.high / capacity.interval.low + 1
    )
    assert f"{(reach / 0.015) ** 2:.2g} times as long would show it to 1.5 %" in capacity.reason


def test_of_a_mean_the_line_is_that_of_its_inverse():
    # M/M/1 with 100 services a second: 1 / mean = 100 − rate, so that 50 ms are met at 80.
    counts = [
        GoalCount(rate, 1000, 1000 / (100 - rate), 0.05, counts=False)
        for rate in (60, 70, 75, 82, 85, 90)
    ]
    line = fitted_line(counts)
    assert line.rate == pytest.approx(80)
    assert line.interval.high == pytest.approx(80, rel=1e-6)


def test_a_mean_that_turns_sharply_meets_its_limit_where_it_does():
    """Service in batches: the queue's mean, by a simulation of benchmarks/load_coverage.py."""
    means = {0.82: 1.449, 0.85: 1.542, 0.88: 1.662, 0.92: 1.915, 0.95: 2.395, 0.97: 3.3}
    counts = [GoalCount(load, 1000, 1000 * m, 1.755, counts=False) for load, m in means.items()]
    assert fitted_line(counts).rate == pytest.approx(0.9, rel=0.01)


def test_shares_that_do_not_grow_with_the_rate_show_no_capacity():
    falling = [GoalCount(rate, 1000, 200 - rate, 0.1) for rate in range(90, 96)]
    assert fitted_line(falling) is None


def test_of_given_rates_the_capacity_is_between_the_last_met_and_the_first_missed():
    load = SimulatedLoad("p90<20ms", mean=0.002)
    levels = [load.level(rate, 30.0, 2) for rate in (600, 100, 200)]
    assert [level.verdict for level in levels] == ["missed", "met", "met"]
    capacity = capacity_of_levels(levels)
    assert (capacity.rate, capacity.interval.low, capacity.interval.high) == (200, 200, 600)
    assert not capacity.above_all_tried
    assert capacity_of_levels(levels[1:]).above_all_tried
    assert not capacity.searched


def test_levels_of_a_late_client_say_nothing_of_given_rates():
    load = SimulatedLoad("p90<20ms", mean=0.002)
    slow, *quick = [load.level(rate, 30.0, 2) for rate in (600, 100, 200)]
    late = ClientLoad(lateness_p99=0.1, limited=True)
    capacity = capacity_of_levels([msgspec.structs.replace(slow, client=late), *quick])
    assert (capacity.rate, capacity.interval, capacity.above_all_tried) == (200, None, True)
    assert capacity.reason.endswith("Levels left out, since the client was late: 1.")
    nothing = capacity_of_levels([msgspec.structs.replace(slow, client=late)])
    assert nothing.rate is None
    assert "client was late: 1." in nothing.reason
    tolerable = msgspec.structs.replace(slow, client=ClientLoad(lateness_p99=1e-3, limited=True))
    assert capacity_of_levels([tolerable, *quick]).interval.high == 600


def test_rates_above_the_highest_met_may_be_unclear():
    load = SimulatedLoad("p90<20ms", mean=0.002)
    met, above = load.level(100, 30.0, 2), load.level(200, 30.0, 2)
    results = tuple(msgspec.structs.replace(goal, verdict="unclear") for goal in above.goals)
    capacity = capacity_of_levels([met, msgspec.structs.replace(above, goals=results)])
    assert (capacity.rate, capacity.interval, capacity.above_all_tried) == (100, None, False)
    assert "higher rates" in capacity.reason
