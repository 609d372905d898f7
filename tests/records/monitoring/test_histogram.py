"""Histograms: hand-computed buckets, merging, and quantiles against all samples."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.histograms import bucket, histogram_of

from torchgauge.records.monitoring.histogram import HIGHEST, LOWEST, Histogram

VALUES = st.lists(st.floats(min_value=0, max_value=1e12), max_size=60)


def test_buckets_by_hand():
    # Upper bounds are inclusive: 1 = 2 ** 0 ends bucket -1, and 32 buckets lead to its double.
    histogram = histogram_of([1.0, 1.01, 2.0, 2.0, 0.0])
    assert (histogram.offset, len(histogram.counts)) == (-1, 33)
    assert dict(histogram.buckets()) == {-1: 1, 0: 1, 31: 2}
    assert (histogram.zero_count, histogram.count, histogram.sum) == (1, 5, 6.01)
    assert (histogram.min, histogram.max, histogram.mean) == (0.0, 2.0, pytest.approx(1.202))


def test_indices_agree_with_exact_arithmetic():
    # b ** 32 = 2, so v is in bucket i if 2 ** i < v ** 32 <= 2 ** (i + 1).
    for value in (3e-9, 0.00123, 0.0257, 1.5, 7.25, 1e6):
        power = Fraction(value) ** 32
        index = bucket(value)
        assert Fraction(2) ** index < power <= Fraction(2) ** (index + 1)


def test_values_beyond_the_layout_count_in_the_outer_buckets():
    histogram = histogram_of([1e-30, 1e30])
    assert dict(histogram.buckets()) == {LOWEST: 1, HIGHEST: 1}
    assert (histogram.min, histogram.max) == (1e-30, 1e30)


def test_of_nothing_everything_is_unknown():
    empty = Histogram()
    assert (empty.count, empty.mean, empty.quantile(0.5), empty.min) == (0, None, None, None)
    assert empty.count_above(1.0) == 0


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, VALUES)
def test_merging_is_associative_and_equals_the_histogram_of_all(first, second, third):
    a, b, c = map(histogram_of, (first, second, third))
    merged, others = (a + b) + c, a + (b + c)
    together = histogram_of([*first, *second, *third])
    for other in (others, together):
        assert merged.counts == other.counts
        assert (merged.offset, merged.zero_count) == (other.offset, other.zero_count)
        assert (merged.min, merged.max) == (other.min, other.max)
        assert merged.sum == pytest.approx(other.sum)


@settings(max_examples=60, deadline=None)
@given(VALUES.filter(bool), st.floats(min_value=0, max_value=1))
def test_quantiles_are_within_their_error_of_the_sample(values, fraction):
    values = [value if value > 1e-11 else 0.0 for value in values]
    rank = max(math.ceil(round(fraction * len(values), 9)), 1)
    truth = sorted(values)[rank - 1]
    assert histogram_of(values).quantile(fraction) == pytest.approx(truth, rel=0.011)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES)
def test_the_difference_of_two_states_is_what_was_added(first, second):
    earlier = histogram_of(first)
    added = (earlier + histogram_of(second)).since(earlier)
    truth = histogram_of(second)
    assert (added.counts, added.offset) == (truth.counts, truth.offset)
    assert (added.zero_count, added.count) == (truth.zero_count, truth.count)
    if second and min(second) > 1e-11:
        assert added.max == pytest.approx(max(second), rel=0.022)
        assert added.min == pytest.approx(min(second), rel=0.022)


def test_a_limit_within_a_bucket_divides_it():
    histogram = histogram_of([0.0, 1.5, 1.5, 4.0])
    low, high = 2 ** (bucket(1.5) / 32), 2 ** ((bucket(1.5) + 1) / 32)
    assert histogram.count_above((low + high) / 2) == pytest.approx(2)
    assert (histogram.count_above(high), histogram.count_above(4.0)) == (1, 0)
    assert histogram.count_above(-1.0) == 4
