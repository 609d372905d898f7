"""Ends cut so that spans nest: by hand, and for any spans at all."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.readers.nesting import nest
from torchgauge.readers.tables import cut_ends


def cut(*spans):
    start, end, thread = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    return cut_ends(start, end - start, thread).tolist()


def test_spans_that_nest_stay_as_they_are():
    assert cut((0, 10, 0), (2, 5, 0), (5, 10, 0), (10, 12, 0)) == [10, 5, 10, 12]


def test_one_that_outlasts_its_parent_by_rounding_is_cut():
    assert cut((0, 10, 0), (2, 11, 0), (3, 4, 0)) == [10, 10, 4]


def test_of_one_after_the_other_the_earlier_is_cut():
    assert cut((0, 10, 0), (9, 19, 0), (12, 15, 0)) == [9, 19, 15]


def test_what_overlaps_on_another_thread_stays():
    assert cut((0, 10, 0), (9, 19, 1)) == [10, 19]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 1)),
        min_size=1,
        max_size=30,
    )
)
def test_afterwards_all_nest_and_none_is_longer(spans):
    start, duration, thread = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    ends = cut_ends(start, duration, thread)
    assert (ends >= start).all()
    assert (ends <= start + duration).all()
    assert nest(start, ends - start, thread).overlaps == 0
