"""The timer: durations by a clock of the test's, exact counts, and draws without a rhythm."""

import itertools
import random
import statistics
import threading

import pytest

from torchgauge.monitoring.meter import LONGEST_GAP, Meter, gaps


def parts(*, draw, times_all):
    durations, failures, special = [], [], []

    def times(inner, args, kwargs):
        special.append(args)
        return inner(*args, **kwargs)

    ticks = itertools.count()
    made = Meter(
        durations.append,
        failures.append,
        times,
        draw=draw,
        times_all=times_all,
        clock=lambda: next(ticks),
    )
    return made, durations, failures, special


def test_every_call_is_timed_but_for_the_special_ones():
    made, durations, failures, special = parts(draw=lambda: 2, times_all=True)
    call = made.wrap(lambda number, *, plus: number + plus)
    assert [call(number, plus=1) for number in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    # The first is special, then each after two others.
    assert special == [(0,), (3,), (6,)]
    assert durations == [1, 1, 1, 1]
    assert (made.total(), failures) == (7, [])


def test_what_a_call_raises_is_counted_and_raised():
    def broken():
        raise KeyError("a")

    for times_all in (True, False):
        made, durations, failures, _ = parts(draw=lambda: 5, times_all=times_all)
        made.wrap(lambda: None)()
        call = made.wrap(broken)
        for _ in range(3):
            with pytest.raises(KeyError, match="a"):
                call()
        assert (failures, durations, made.total()) == ([KeyError] * 3, [], 4)


def test_calls_in_eight_threads_are_all_counted():
    generator = random.Random(1)
    made, *_ = parts(draw=gaps(7, generator.random), times_all=False)
    call = made.wrap(lambda: sum(range(3)))
    threads = [threading.Thread(target=lambda: [call() for _ in range(4000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.total() == 8 * 4000


def test_calls_that_pass_while_a_special_one_begins_are_counted():
    made, _, _, special = parts(draw=lambda: 4, times_all=False)
    call = made.wrap(lambda: None)
    call()
    made.countdown[0] = -3  # seven of other threads, three of them after it has run out
    call()
    assert (made.total(), len(special)) == (1 + 7 + 1, 2)


def test_gaps_are_geometric_with_the_mean_of_their_rate():
    generator = random.Random(2)
    draw = gaps(20, generator.random)
    values = [draw() for _ in range(20_000)]
    assert statistics.fmean(values) == pytest.approx(19, rel=0.03)
    # Of independent draws one in 20 follows at once.
    assert values.count(0) / len(values) == pytest.approx(1 / 20, rel=0.1)
    assert gaps(1)() == 0


def test_a_rhythm_of_calls_is_not_met():
    """One call in ten takes long, always the tenth: it has its share among the sampled."""
    generator = random.Random(3)
    made, _, _, special = parts(draw=gaps(10, generator.random), times_all=False)
    call = made.wrap(lambda slow: None)
    for number in range(20_000):
        call(number % 10 == 0)
    assert sum(slow for (slow,) in special) / len(special) == pytest.approx(0.1, abs=0.03)


def test_the_buffer_is_looked_after_before_long():
    made, durations, _, special = parts(draw=lambda: 10**9, times_all=True)
    call = made.wrap(lambda: None)
    for _ in range(2 * LONGEST_GAP + 2):
        call()
    assert (len(special), len(durations)) == (2, 2 * LONGEST_GAP)
    made.restart()
    assert made.total() == 0
    call()
    assert (made.total(), len(special)) == (1, 3)
