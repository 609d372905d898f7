"""A budget is kept: what does not fit is not begun, what runs on is stopped, nothing is lost."""

import random

import pytest
import torch
from tests.support.advice_processes import coded, world
from tests.support.advice_worlds import World, candidate

import torchgauge as tg
from torchgauge.advice.budget import GRACE, GRACE_SHARE, Budget, BudgetOver
from torchgauge.advice.candidates.every import ALL_CANDIDATES
from torchgauge.advice.experiment import Experiment
from torchgauge.advice.world import Side
from torchgauge.analyze.advice.speed_up import CONFIRMATION, FEWEST_CONFIRMING, SCREENING
from torchgauge.errors import MeasurementError
from torchgauge.progress import Silent


def tried(world, *candidates, budget):
    world.budget = Budget(budget, world.now)
    found = Experiment(world, candidates, Silent(), budget=world.budget).run()
    return found, {one.id: one for one in found.trials}


def screened(world):
    """Return the candidates in the order in which they were checked."""
    return [one[1][0] for one in world.asked if one[0] == "check" and len(one[1]) == 1]


def test_what_saves_most_per_second_of_trying_comes_first():
    slow = candidate("slow", gain=0.3, setup=lambda _: 100.0)
    some, much, none = (candidate(name, gain=g) for name, g in [("s", 0.1), ("m", 0.2), ("n", 0)])
    made = World({}, look_seconds=1.0)
    _, trials = tried(made, slow, none, some, much, budget=1000.0)
    # A second for the check and one for each of six blocks; slow: 100 more, and 50 in each block.
    assert screened(made) == ["m", "s", "slow", "n"]
    assert list(trials) == ["slow", "n", "s", "m"]


def test_what_cannot_end_in_time_is_not_begun_and_says_what_it_takes():
    made = World({"fast": 1.3}, seconds=2.0, look_seconds=1.0)
    compiled = candidate("compiled", gain=0.3, setup=lambda _: 40.0)
    _, trials = tried(made, compiled, candidate("fast"), budget=30.0)
    assert trials["fast"].outcome == "accepted"
    assert screened(made) == ["fast"]
    one = trials["compiled"]
    assert (one.outcome, one.how, one.speed_up) == ("untried", None, None)
    # The check: a second and 40. Blocks, estimated from the look: each 4 seconds on one core, and
    # half of 40 in a warm process.
    assert one.needed == 1 + 40 + (SCREENING + FEWEST_CONFIRMING) * (4 + 20)
    assert "the budget" in one.reason
    assert "about 3 min" in one.reason


def test_compilation_that_was_not_expected_is_part_of_the_estimate_afterwards():
    class Compiling(World):
        def check(self, side, tolerance):
            checked = super().check(side, tolerance)
            self.spend(30.0)
            return type(checked)(checked.output, checked.memory, 30.0)

    made = Compiling({"a": 1.5}, look_seconds=1.0)
    _, trials = tried(made, candidate("a"), budget=40.0)
    # 8 s are left, and a block of it is expected to take 4 s and half of 30.
    assert trials["a"].outcome == "untried"
    assert made.blocks() == []
    assert made.time == pytest.approx(32.0)
    assert trials["a"].output.passed
    assert trials["a"].reason.startswith("Its output is kept; the budget")


def test_a_block_that_runs_on_is_stopped_and_the_others_stay():
    made = World({"fast": 1.3, "stuck": 1.2}, slow={"stuck": 1e6})
    ids = candidate("fast", gain=0.2), candidate("stuck", gain=0.1)
    found, trials = tried(made, *ids, budget=100.0)
    assert made.time == pytest.approx(100 * (1 + GRACE_SHARE) + GRACE)
    assert trials["fast"].screening.blocks == SCREENING
    assert trials["stuck"].outcome == "untried"
    assert not found.interrupted


def test_fewer_fresh_blocks_are_judged_where_the_budget_allows_no_more():
    made = World({"fast": 1.3})
    _, trials = tried(made, candidate("fast"), budget=float(SCREENING + FEWEST_CONFIRMING + 0.5))
    assert trials["fast"].outcome == "accepted"
    assert trials["fast"].confirmation.blocks == FEWEST_CONFIRMING < CONFIRMATION


def test_too_few_fresh_blocks_are_told_and_do_not_count():
    class Slowing(World):
        def block(self, a, b, *, layers):
            self.seconds = 1.0 if len(self.blocks()) < SCREENING + 2 else 50.0
            return super().block(a, b, layers=layers)

    _, trials = tried(Slowing({"fast": 1.3}), candidate("fast"), budget=10.0)
    assert trials["fast"].outcome == "untried"
    assert trials["fast"].screening.blocks == SCREENING
    assert trials["fast"].confirmation is None
    assert "2 blocks, too few to judge" in trials["fast"].reason


def test_a_combination_that_does_not_fit_is_left_out():
    made = World({"a": 1.4, "b": 1.3})
    found, trials = tried(made, *map(candidate, "ab"), budget=20.0)
    assert {one.outcome for one in trials.values()} == {"accepted"}
    assert found.combinations == ()
    assert found.best.candidates == ("a",)
    assert made.time <= 20


@pytest.mark.parametrize("seed", range(20))
def test_no_world_is_slow_enough_to_break_it(seed):
    chance = random.Random(seed)
    names = "abcdef"
    made = World(
        {name: chance.choice([0.9, 1.1, 1.5]) for name in names},
        seconds=chance.expovariate(0.2),
        look_seconds=chance.expovariate(0.5),
        slow={name: chance.expovariate(0.05) for name in names if chance.random() < 0.4},
        seed=seed,
    )
    seconds = chance.uniform(20, 200)
    _, trials = tried(made, *map(candidate, names), budget=seconds)
    assert made.time <= max(made.look_seconds, seconds * (1 + GRACE_SHARE) + GRACE) + 1e-6
    for one in trials.values():
        assert (one.outcome == "untried") == ("budget" in one.reason)
        assert one.needed is None or one.outcome == "untried"


def test_without_a_budget_nothing_is_left_out():
    made = World(dict.fromkeys("abc", 1.2), seconds=1000.0, look_seconds=100.0)
    _, trials = tried(made, *map(candidate, "abc"), budget=None)
    assert {one.outcome for one in trials.values()} == {"accepted"}


def test_compiling_is_expected_to_take_longer_than_other_candidates():
    known = {one.id: one for one in ALL_CANDIDATES}
    facts = World({}, layers={"Linear": 100}).known
    assert known["compile"].setup(facts) > known["bf16-autocast"].setup(facts) == 0


class Stuck(torch.nn.Module):
    """Never returns where it is changed."""

    stuck = False

    def forward(self, x):
        while self.stuck:
            pass
        return x + 1


@pytest.mark.slow
def test_running_processes_are_stopped_when_it_is_over():
    stuck = Side((coded("stuck", "model.stuck = True"),))
    real = world(Stuck(), torch.ones(2))
    real.facts()
    for work in (lambda: real.check(stuck, 1e-3), lambda: real.block(Side(), stuck, layers=False)):
        real.budget = Budget(1.0)
        with pytest.raises(BudgetOver):
            work()


@pytest.mark.slow
def test_a_budget_that_ends_before_the_model_is_known_is_an_error():
    model = Stuck()
    model.stuck = True
    with pytest.raises(MeasurementError) as caught:
        tg.advise(model, torch.ones(2), budget=0.5, progress=False)
    assert caught.value.id == "budget-short"
