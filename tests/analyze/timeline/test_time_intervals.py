"""Sets of times, against the same by every single nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.timeline.device_time import union

WINDOW = (5, 25)
pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=8)


def of(found):
    begin = np.array([one for one, _ in found], np.int64)
    return union(begin, begin + np.array([length for _, length in found], np.int64), WINDOW)


def points(found):
    times = {time for begin, length in found for time in range(begin, begin + length)}
    return times & set(range(*WINDOW))


@given(pairs)
def test_a_union_covers_what_any_covers(found):
    covered = of(found)
    assert covered.length == len(points(found))
    assert (covered.begin[1:] > covered.end[:-1]).all()


@given(pairs, st.integers(0, 30), st.integers(0, 9))
def test_within(found, begin, length):
    inside = points(found) & set(range(begin, begin + length))
    assert of(found).within(begin, begin + length) == len(inside)


@given(pairs, pairs)
def test_what_is_in_one_and_not_in_the_other(found, others):
    assert of(found).outside(of(others)).length == len(points(found) - points(others))
