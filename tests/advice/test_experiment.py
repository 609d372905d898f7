"""The experiment's decisions on made-up timings of which the truth is known."""

import pytest
from tests.support.advice_worlds import KEPT, World, candidate

from torchgauge.advice.budget import Budget
from torchgauge.advice.experiment import Experiment
from torchgauge.analyze.advice.speed_up import CONFIRMATION, SCREENING, confirmed
from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.advice.check import CheckResult
from torchgauge.measure.advice.outputs import DIFFERS
from torchgauge.progress import Silent
from torchgauge.records.advice import OutputCheck

BROKEN = CheckResult(OutputCheck(passed=False, bound=1e-3, max_relative=0.5, reason=DIFFERS))


def tried(world, *candidates, **options):
    if "budget" in options:
        options["budget"] = world.budget = Budget(options["budget"], world.now)
    found = Experiment(world, candidates, Silent(), **options).run()
    return found, {one.id: one for one in found.trials}


def test_what_is_faster_is_accepted_with_the_interval_of_fresh_blocks():
    world = World({"fast": 1.2})
    found, trials = tried(world, candidate("fast"))
    one = trials["fast"]
    assert one.outcome == "accepted"
    assert one.how == "measured"
    assert one.screening.blocks == SCREENING
    assert one.confirmation.blocks == CONFIRMATION
    assert one.confirmation.interval.low < 1.2 < one.confirmation.interval.high
    assert not set(one.screening.differences) & set(one.confirmation.differences)
    # 0.5 s once, and 10 ms − 10 ms ÷ 1.2 are saved in each call: 300 calls.
    assert one.break_even == pytest.approx(300, rel=0.05)
    assert one.memory_change == 0
    assert [layer.path for layer in one.layers] == ["fc"]
    assert found.best.candidates == ("fast",)
    assert found.best.code == "model = fast(model)"


def test_what_gains_nothing_or_too_little_is_rejected():
    world = World({"same": 1.0, "slow": 0.8, "little": 1.005}, noise=0.0005)
    found, trials = tried(world, *map(candidate, world.truth))
    assert {one.outcome for one in trials.values()} == {"rejected"}
    assert trials["slow"].screening.blocks == SCREENING + 1
    assert "no gain above 1.0 %" in trials["slow"].reason
    assert trials["slow"].confirmation is None
    assert found.best is None


def test_a_lucky_screening_is_not_confirmed():
    class Lucky(World):
        """Screening sees 10 % that are not there."""

        def block(self, a, b, *, layers):
            self.truth = {"same": 1.1 if len(self.blocks()) < SCREENING else 1.0}
            return super().block(a, b, layers=layers)

    _, trials = tried(Lucky({}), candidate("same"))
    assert trials["same"].screening.value == pytest.approx(1.1, rel=0.02)
    assert trials["same"].outcome == "rejected"
    assert "fresh blocks" in trials["same"].reason


def test_a_gain_just_above_the_minimum_is_not_surely_above_it():
    _, trials = tried(World({"some": 1.03}, noise=0.05, seed=3), candidate("some"))
    some = trials["some"]
    assert some.outcome == "undecided"
    assert some.confirmation.interval.low < 1.01 < some.confirmation.interval.high
    assert "not significantly above 1.0 %" in some.reason


def test_an_interval_that_holds_a_gain_rejects_nothing():
    """Nor does a screening whose interval holds one."""
    for seed in range(20):
        _, trials = tried(World({"same": 1.0}, noise=0.1, seed=seed), candidate("same"))
        one = trials["same"]
        assert one.speed_up.interval.high > 1.01
        assert one.outcome == "undecided"


BUSY = {"core_share": 0.6, "cpu": {"fast": 1.16}}


def test_wall_time_on_a_busy_machine_confirms_nothing_that_cpu_time_contradicts():
    found, trials = tried(World({"fast": 1.9}, noise=0.03, **BUSY), candidate("fast"))
    one = trials["fast"]
    assert one.confirmation.value == pytest.approx(1.9, rel=0.05)
    assert one.confirmation.cpu.value == pytest.approx(1.16, rel=0.05)
    assert one.confirmation.cpu.core_share == 0.6
    assert one.outcome == "undecided"
    assert "contradict" in one.reason
    assert "by CPU time" in one.reason
    assert found.best is None


def test_on_an_idle_machine_wall_time_decides():
    """More threads take more CPU time, and are faster."""
    world = World({"fast": 1.9}, cpu={"fast": 0.8}, core_share=0.99)
    assert tried(world, candidate("fast"))[1]["fast"].outcome == "accepted"


def test_wall_and_cpu_time_that_agree_are_confirmed_on_a_busy_machine():
    world = World({"fast": 1.2}, core_share=None)  # nobody knows whether it is busy
    one = tried(world, candidate("fast"))[1]["fast"]
    assert one.outcome == "accepted"
    assert one.confirmation.cpu.busy


def test_a_gain_that_load_hides_in_screening_is_confirmed_or_undecided():
    world = World({"fast": 0.97}, noise=0.002, **BUSY)
    assert tried(world, candidate("fast"))[1]["fast"].outcome == "undecided"


def test_combinations_are_judged_alike():
    class OnTop(World):
        """Together wall time shows what CPU time does not."""

        def block(self, a, b, *, layers):
            self.cpu = {"a": 1.0, "b": 1.0} if a.ids else {}
            return super().block(a, b, layers=layers)

    world = OnTop({"a": 1.3, "b": 1.2}, core_share=0.6)
    found, _ = tried(world, candidate("a"), candidate("b"))
    assert [one.outcome for one in found.combinations] == ["undecided"]
    assert found.best.candidates == ("a",)


def test_a_broken_output_is_rejected_before_it_is_timed():
    world = World({"fast": 2.0}, checks={"fast": BROKEN})
    _, trials = tried(world, candidate("fast"))
    assert trials["fast"].outcome == "rejected"
    assert "50 %" in trials["fast"].reason
    assert world.blocks() == []


@pytest.mark.parametrize("id", ["child-killed", "out-of-memory", "change-raised"])
@pytest.mark.parametrize("where", ["checks", "errors"])
def test_a_crash_is_a_result_and_the_rest_goes_on(id, where):
    error = MeasurementError("It died.", id=id, cause="Signal 6.")
    world = World({"fast": 1.2}, **{where: {"bad": error}})
    _, trials = tried(world, candidate("bad"), candidate("fast"))
    assert trials["bad"].outcome == "failed"
    assert trials["bad"].reason == "It died. Signal 6."
    assert trials["fast"].outcome == "accepted"


def test_an_original_that_does_not_run_is_an_error():
    world = World({})
    world.facts = lambda: (_ for _ in ()).throw(InputError("No.", id="input-batch"))
    with pytest.raises(InputError):
        tried(world, candidate("a"))


def test_what_does_not_fit_is_untried_with_its_reason():
    world = World({})
    _, trials = tried(world, candidate("other", reason=lambda _: "There is none."))
    assert (trials["other"].outcome, trials["other"].reason) == ("untried", "There is none.")
    assert trials["other"].how is None
    assert world.asked == []


def test_the_tolerance_is_the_candidate_s_own_or_the_user_s():
    world = World({})
    tried(world, candidate("a", tolerance=0.05))
    tried(world, candidate("a", tolerance=0.05), tolerance=0.2)
    assert [one[2] for one in world.asked if one[0] == "check"] == [0.05, 0.2]


def test_winners_are_combined_as_long_as_each_adds_something():
    world = World({"a": 1.3, "b": 1.2, "c": 1.1})
    found, _ = tried(world, *map(candidate, "cba"))
    assert [one.candidates for one in found.combinations] == [("a", "b"), ("a", "b", "c")]
    assert [one.against for one in found.combinations] == [("a",), ("a", "b")]
    assert found.combinations[0].speed_up.value == pytest.approx(1.2, rel=0.02)
    assert found.best.candidates == ("a", "b", "c")
    # The whole is measured on the original, not multiplied.
    assert len(world.blocks((), ("a", "b", "c"))) == CONFIRMATION
    assert found.best.speed_up.value == pytest.approx(1.3 * 1.2 * 1.1, rel=0.02)


def test_a_winner_that_adds_nothing_on_top_is_left_out():
    class Overlapping(World):
        def _of(self, side):
            return max([1.0, *(self.truth[name] for name in side.ids)])

    found, trials = tried(Overlapping({"a": 1.3, "b": 1.2}), candidate("a"), candidate("b"))
    assert {one.outcome for one in trials.values()} == {"accepted"}
    assert found.combinations[0].outcome == "rejected"
    assert found.best.candidates == ("a",)


def test_a_combination_whose_output_breaks_is_rejected():
    world = World({"a": 1.3, "b": 1.2}, checks={("a", "b"): BROKEN})
    found, _ = tried(world, candidate("a"), candidate("b"))
    assert found.combinations[0].outcome == "rejected"
    assert found.combinations[0].speed_up is None
    assert found.best.candidates == ("a",)


def test_two_of_a_group_are_not_combined():
    world = World({"a": 1.3, "b": 1.2})
    found, _ = tried(world, *(candidate(name, group="g") for name in "ab"))
    assert found.combinations == ()


def test_lines_run_in_the_order_that_works():
    world = World({"wrap": 1.3, "fold": 1.2})
    found, _ = tried(world, candidate("wrap", order="compile"), candidate("fold", order="rewrite"))
    assert found.best.code == "model = fold(model)\nmodel = wrap(model)"


def test_memory_is_judged_by_its_peak_and_time_is_the_price():
    less = CheckResult(KEPT, memory=600)
    same = CheckResult(KEPT, memory=990)
    world = World({"less": 0.7, "same": 0.7}, checks={"less": less, "same": same})
    found, trials = tried(world, *(candidate(name, goal="memory") for name in world.truth))
    assert trials["less"].outcome == "accepted"
    assert trials["less"].memory_change == pytest.approx(-0.4)
    assert trials["less"].speed_up.value == pytest.approx(0.7, rel=0.02)
    assert trials["same"].outcome == "rejected"
    assert found.best is None


def test_memory_of_a_process_is_saved_beyond_what_processes_differ_by():
    checks = {"less": CheckResult(KEPT, memory=600), "chance": CheckResult(KEPT, memory=800)}
    truth = {"less": 0.7, "chance": 0.7}
    world = World(truth, checks=checks, runtime="onnxruntime", module=False)
    names = [candidate(name, goal="memory", needs_module=False) for name in truth]
    _, trials = tried(world, *names)
    assert trials["less"].outcome == "accepted"
    assert trials["chance"].outcome == "rejected"
    assert "30 %" in trials["chance"].reason


def test_a_larger_batch_must_keep_the_limit_of_a_call():
    world = World({"twice": 1.5, "four": 1.6}, latency_limit=0.02)
    _, trials = tried(world, candidate("twice", times=2), candidate("four", times=4))
    assert trials["twice"].outcome == "accepted"  # 2 × 10 ms ÷ 1.5
    assert trials["four"].outcome == "rejected"  # 4 × 10 ms ÷ 1.6


def test_a_budget_leaves_the_last_untried():
    world = World(dict.fromkeys("abcdef", 1.2))
    _, trials = tried(world, *map(candidate, world.truth), budget=20.0)
    outcomes = [one.outcome for one in trials.values()]
    assert "accepted" in outcomes
    assert outcomes[-1] == "untried"
    assert "budget" in trials["f"].reason
    assert world.time < 30


@pytest.mark.parametrize("after", [1, SCREENING + 2])
def test_ctrl_c_keeps_what_was_found(after):
    class Stopped(World):
        def block(self, a, b, *, layers):
            if len(self.blocks()) == after:
                raise KeyboardInterrupt
            return super().block(a, b, layers=layers)

    found, trials = tried(Stopped({"fast": 1.3}), candidate("fast"))
    assert found.interrupted
    assert trials["fast"].outcome == "untried"
    assert "Ctrl-C" in trials["fast"].reason
    assert trials["fast"].output == KEPT


def test_holm_asks_more_of_one_among_many():
    assert confirmed({"a": 0.02}) == {"a": True}
    assert confirmed({"a": 0.02, "b": 0.5}) == {"a": False, "b": False}
    assert confirmed({"a": 0.02, "b": 0.01}) == {"a": True, "b": True}
