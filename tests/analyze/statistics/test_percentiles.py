"""Percentile intervals against scipy's binomial distribution."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from torchgauge.analyze.statistics.percentiles import percentile_interval, samples_needed


@pytest.mark.parametrize(
    ("fraction", "needed"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.1, 36)]
)
def test_fewest_samples(fraction, needed):
    assert samples_needed(fraction) == needed
    assert percentile_interval(np.arange(needed - 1.0), fraction, 1.0) is None
    assert percentile_interval(np.arange(needed + 0.0), fraction, 1.0) is not None


@given(st.integers(36, 3000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_leave_a_fortieth_on_either_side_and_no_rank_more(count, fraction):
    interval = percentile_interval(np.arange(1.0, count + 1), fraction, 1.0)
    if interval is None:
        assert count < samples_needed(fraction)
        return
    low, high = int(interval.low), int(interval.high)
    below = binom(count, fraction).cdf
    assert below(low - 1) < 0.025 <= below(low)
    assert below(high - 1) >= 0.975 > below(high - 2)


def test_correlated_samples_count_for_fewer():
    samples = np.arange(1.0, 1001.0)
    plain, correlated = (percentile_interval(samples, 0.9, tau) for tau in (1.0, 5.0))
    assert correlated.low < plain.low < 900 < plain.high < correlated.high <= 1000
    assert percentile_interval(samples, 0.99, 5.0) is None


def test_correlated_interval_is_as_wide_as_that_of_its_worth():
    """1000 samples with τ = 5 say what 200 say: the same quantiles bound the interval."""
    wide = percentile_interval(np.arange(1000.0) / 1000, 0.9, 5.0)
    worth = percentile_interval(np.arange(200.0) / 200, 0.9, 1.0)
    assert wide.low == pytest.approx(worth.low, abs=0.006)
    assert wide.high == pytest.approx(worth.high, abs=0.006)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=500),
    st.sampled_from([0.9, 0.95, 0.99]),
    st.floats(1, 20),
)
def test_interval_stays_in_the_data(samples, fraction, tau):
    interval = percentile_interval(samples, fraction, tau)
    if interval is not None:
        assert min(samples) <= interval.low <= interval.high <= max(samples)
