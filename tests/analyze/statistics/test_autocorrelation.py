"""The autocorrelation time against the definition done by loops and against known processes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.statistics.autocorrelation import (
    autocorrelation_time,
    cautious,
    initial_positive_sequence,
)


def ar1(count, correlation, seed=0):
    """Return a long AR(1) series of unit variance."""
    rng = np.random.default_rng(seed)
    values, state = [], rng.normal()
    for fresh in rng.normal(size=count):
        state = correlation * state + math.sqrt(1 - correlation**2) * fresh
        values.append(state)
    return np.array(values)


def by_loops(series):
    """Return the initial positive sequence as Geyer's text reads."""
    n, mean = len(series), sum(series) / len(series)

    def covariance(lag):
        return sum((series[i] - mean) * (series[i + lag] - mean) for i in range(n - lag))

    total, variance = -1.0, covariance(0)
    for m in range(n // 2):
        pair = (covariance(2 * m) + covariance(2 * m + 1)) / variance
        if pair <= 0:
            break
        total += 2 * pair
    return max(1.0, total)


@given(st.integers(0, 10_000), st.integers(2, 60))
def test_fft_agrees_with_the_definition(seed, count):
    series = ar1(count, 0.7, seed)
    assert initial_positive_sequence(series) == pytest.approx(by_loops(series.tolist()))


@pytest.mark.parametrize(("correlation", "tau"), [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)])
def test_ar1_has_its_textbook_time(correlation, tau):
    """(1 + φ)/(1 − φ)."""
    found = [initial_positive_sequence(ar1(20_000, correlation, seed)) for seed in range(10)]
    assert np.mean(found) == pytest.approx(tau, rel=0.08)


def test_time_is_that_of_the_indicator():
    """The indicator of a Gaussian AR(1) has correlations (2/π)·asin(φ^k)."""
    truth = 1 + 2 * sum(2 / math.pi * math.asin(0.8**k) for k in range(1, 200))
    runs = [np.exp(ar1(20_000, 0.8, seed)) for seed in range(10)]
    for samples in runs:
        samples[::1000] *= 1e6
    assert np.mean([autocorrelation_time(run) for run in runs]) == pytest.approx(truth, rel=0.08)


@pytest.mark.parametrize("samples", [[], [1.0], [1.0, 1.0, 1.0], [1.0, 2.0] * 50])
def test_time_is_never_below_one(samples):
    assert autocorrelation_time(samples) == 1.0


def test_mostly_the_largest_value_still_has_a_time():
    assert autocorrelation_time([1.0] * 20 + [2.0] * 30) > 5


def test_caution_is_the_written_formula():
    assert cautious(1.0, 100) == pytest.approx(1 + 0.2 + 0.03)
    assert cautious(4.0, 100) == pytest.approx(4 * (1 + 0.4 + 0.12))
