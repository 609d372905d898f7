"""Blocks, looks, the one extension: on blocks that a test makes."""

import math

import pytest

from torchgauge.errors import MeasurementError
from torchgauge.measure.latency.blocks import Pace, Timed, run
from torchgauge.progress import Silent


class Blocks:
    """Blocks as told: a number of them, then what is raised."""

    def __init__(self, then=None, after=math.inf):
        self.made, self.then, self.after = 0, then, after

    def __call__(self):
        if self.made >= self.after:
            raise self.then
        self.made += 1
        return Timed({}, duration=2.0)


def never(_):
    return False


def always(_):
    return True


class Notes(Silent):
    def __init__(self):
        self.said = []

    def update(self, detail, fraction=None):
        self.said.append((detail, fraction))


def test_what_is_decided_at_the_first_look_ends_there():
    done = run(Blocks(), 4, 40, always, Silent())
    assert (len(done.blocks), done.look_count, done.complete) == (4, 1, True)


def test_what_is_not_is_extended_once():
    seen = []
    done = run(Blocks(), 4, 40, lambda blocks: bool(seen.append(len(blocks))), Silent())
    assert (len(done.blocks), done.look_count) == (8, 2)
    assert seen == [4]  # the last look is the ruling's


@pytest.mark.parametrize(("most", "blocks", "looks"), [(6, 6, 2), (4, 4, 1)])
def test_the_extension_keeps_to_the_most(most, blocks, looks):
    done = run(Blocks(), 4, most, never, Silent())
    assert (len(done.blocks), done.look_count) == (blocks, looks)


def test_ctrl_c_keeps_the_whole_blocks():
    done = run(Blocks(KeyboardInterrupt(), 3), 4, 40, never, Silent())
    assert (len(done.blocks), done.interrupted, done.look_count, done.complete) == (
        3,
        True,
        0,
        False,
    )


def test_an_error_after_two_blocks_keeps_them_and_is_told():
    error = MeasurementError("A measuring process was killed.", id="child-killed")
    done = run(Blocks(error, 2), 4, 40, never, Silent())
    assert len(done.blocks) == 2
    assert done.warnings[0].message == "Block 3: A measuring process was killed."
    assert not done.complete


def test_an_error_before_is_raised():
    error = MeasurementError("It died.", id="child-killed")
    with pytest.raises(MeasurementError):
        run(Blocks(error, 1), 4, 40, never, Silent())


def test_progress_tells_the_time_left():
    notes = Notes()
    run(Blocks(), 3, 3, always, notes)
    assert notes.said == [
        ("block 1 of 3", 0.0),
        ("block 2 of 3, 4.0 s left", 1 / 3),
        ("block 3 of 3, 2.0 s left", 2 / 3),
    ]


def test_d_is_the_mean_over_rounds_and_cancels_an_even_drift():
    # Each round is slower than the last, and within it every visit than the one before.
    visits = [[1.0 * 1.1**r * 1.01**n for r in range(4)] for n in range(4)]
    assert Timed({"latency": visits}).differences() == {"latency": pytest.approx(0.0)}
    slower = [visits[0], [2 * v for v in visits[1]], [2 * v for v in visits[2]], visits[3]]
    assert Timed({"latency": slower}).differences() == {"latency": pytest.approx(math.log(2))}


def test_a_layer_that_one_process_lacks_has_no_difference():
    layers = ({"a": 1.0, "b": 1.0}, {"a": 2.0}, {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 1.0})
    assert Timed({}, layers).layer_logs() == {
        "a": pytest.approx((0.0, math.log(2), math.log(2), 0.0))
    }


def undisturbed(*fastest):
    """Return what calls take undisturbed whose fastest one took 5 s to 8 s."""
    visits = tuple((9.0, 5.0 + number) for number in range(4))
    return Timed({"fastest": visits}, fastest=fastest).undisturbed


def test_an_undisturbed_call_is_the_sum_of_the_layers_least_times():
    one, other = {"": 0.5, "a": 2.0}, {"": 0.25, "a": 3.0}
    assert undisturbed(one, other, other, one) == (2.5, 3.25, 3.25, 2.5)


def test_builds_of_other_layers_are_compared_by_their_fastest_call():
    """A sum over more and shorter layers finds more quiet moments than one over few."""
    assert undisturbed({"a": 1.0}, {"b": 1.0}, {"b": 1.0}, {"a": 1.0}) == (5.0, 6.0, 7.0, 8.0)
    assert undisturbed({}, {}, {}, {}) == (5.0, 6.0, 7.0, 8.0)


def test_a_run_ends_after_three_blocks_where_all_would_not_be_enough():
    asked = []

    def hopeless(blocks, allowed):
        asked.append((len(blocks), allowed))
        return True

    done = run(Blocks(), 8, 12, never, Silent(), hopeless)
    assert (len(done.blocks), done.look_count, done.hopeless) == (3, 0, True)
    assert asked == [(3, 12)]
    done = run(Blocks(), 8, 12, never, Silent(), lambda *_: False)
    assert (len(done.blocks), done.hopeless) == (12, False)


def test_one_at_a_time_is_visited_once_for_as_long():
    assert Pace(rounds=4, seconds=0.1, calls=3).question.calls == 3
    alone = Pace(rounds=4, seconds=0.1, calls=3, concurrent=False).question
    assert (alone.seconds, alone.calls, alone.layers) == (pytest.approx(0.4), 12, True)
