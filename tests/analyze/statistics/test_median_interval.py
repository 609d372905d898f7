"""The median's interval at ranks worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.statistics.median import median_interval
from torchgauge.records.record import Interval


def test_ranks_of_a_hundred_independent_samples():
    """τ' = 1.23; 1.96·sqrt(100·1.23/4) = 10.87; ranks 50.5 − 10.87 and 50.5 + 10.87."""
    shuffled = np.random.default_rng(0).permutation(np.arange(1.0, 101.0))
    found = median_interval(shuffled, tau=1.0)
    assert (found.low, found.high) == pytest.approx((39.63, 61.37), abs=0.01)


def test_autocorrelation_widens():
    """τ' = 4·1.52; 1.96·sqrt(100·6.08/4) = 24.16."""
    found = median_interval(np.arange(1.0, 101.0), tau=4.0)
    assert (found.low, found.high) == pytest.approx((26.34, 74.66), abs=0.01)


def test_six_independent_samples_are_the_fewest():
    """All six lie on one side of the median with probability 2/64 < 5 %, five with 2/32."""
    assert median_interval([3.0, 1.0, 4.0, 1.5, 9.0, 2.6], tau=1.0) == Interval(
        low=1.0, high=9.0, scope="process"
    )
    assert median_interval([3.0, 1.0, 4.0, 1.5, 9.0], tau=1.0) is None
    assert median_interval([3.0, 1.0, 4.0, 1.5, 9.0, 2.6], tau=1.1) is None


def test_equal_samples_leave_no_doubt():
    assert median_interval([0.25] * 30) == Interval(low=0.25, high=0.25, scope="process")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_interval_holds_the_median_and_stays_in_the_data(samples):
    interval = median_interval(samples)
    if interval is None:
        assert len(samples) < 6 or len(set(samples)) > 1
    else:
        assert min(samples) <= interval.low <= np.median(samples) <= interval.high <= max(samples)


@given(st.integers(0, 1000), st.integers(12, 300))
def test_unit_does_not_matter(seed, count):
    samples = np.random.default_rng(seed).gamma(3, size=count)
    one, other = median_interval(samples), median_interval(samples * 1024)
    if one is None:
        assert other is None
    else:
        assert (one.low * 1024, one.high * 1024) == pytest.approx((other.low, other.high))


@pytest.mark.parametrize("count", [12, 20, 50, 200])
def test_coverage_of_independent_samples(count):
    rng = np.random.default_rng(count)
    intervals = [median_interval(np.exp(rng.normal(size=count))) for _ in range(400)]
    held = [found is None or found.low <= 1 <= found.high for found in intervals]
    assert np.mean(held) >= 0.93
