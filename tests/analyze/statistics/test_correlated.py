"""Percentiles and means of samples that resemble their neighbours: by hand, and their coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from torchgauge.analyze.serving.levels import correlated_mean, correlated_share
from torchgauge.analyze.statistics.autocorrelation import (
    LOWER_TAIL,
    UPPER_TAIL,
    CorrelatedSamples,
    enlarged,
    independent_needed,
    share_interval,
)


def in_groups(count, repeats, seed=0):
    """Return independent values, each of them `repeats` times in a row: τ is `repeats`."""
    return np.repeat(np.random.default_rng(seed).permutation(count).astype(float), repeats)


def test_a_percentile_is_the_least_value_that_its_share_does_not_exceed():
    samples = CorrelatedSamples(np.arange(100.0, 0.0, -1.0))
    assert [samples.value(f) for f in (0.01, 0.5, 0.9, 0.99, 0.995)] == [1, 50, 90, 99, 100]


def test_alternating_samples_count_as_independent_ranks_by_hand():
    """τ is 1 at least, τ′ = 1 + 4·sqrt(1/n) + 20/n; ranks are the binomial quantiles at n/τ′."""
    samples = CorrelatedSamples(np.random.default_rng(3).permutation(4000).astype(float))
    figure = samples.percentile(0.5)
    assert figure.correlation >= enlarged(1.0, 4000) == pytest.approx(1.0682, abs=1e-4)
    effective = int(4000 / figure.correlation)
    low = stats.binom.ppf(LOWER_TAIL, effective, 0.5)
    high = stats.binom.ppf(1 - UPPER_TAIL, effective, 0.5) + 1
    scale = 4000 / effective
    assert figure.low == math.floor((low - 1) * scale)
    assert figure.high == 3999 - math.floor((effective - high) * scale)


def test_repeated_samples_say_no_more_than_each_once():
    once = CorrelatedSamples(in_groups(2000, 1)).percentile(0.9)
    often = CorrelatedSamples(in_groups(2000, 20)).percentile(0.9)
    assert often.correlation == pytest.approx(20 * once.correlation, rel=0.25)
    assert (often.high - often.low) == pytest.approx(once.high - once.low, rel=0.3)


def test_correlation_above_the_percentile_alone_counts():
    """Independent at the median; a hundred spikes in ten bursts: ten events, and no interval."""
    samples = np.random.default_rng(0).random(10_000)
    samples[np.arange(10)[:, None] * 1000 + np.arange(10)] = 5.0
    measured = CorrelatedSamples(samples)
    assert measured.correlation_time(0.5) < 1.5
    assert measured.correlation_time(0.99) > 7
    figure = measured.percentile(0.99)
    assert figure.low is None
    assert figure.needed > 7000


@pytest.mark.parametrize(("fraction", "needed"), [(0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1000)])
def test_ten_independent_samples_must_lie_beyond(fraction, needed):
    assert independent_needed(fraction) == needed
    size = math.ceil(needed * enlarged(1.0, needed)) - 1
    few = CorrelatedSamples(np.random.default_rng(1).random(size)).percentile(fraction)
    assert few.low is None
    assert few.needed > size
    enough = CorrelatedSamples(np.random.default_rng(1).random(10 * needed)).percentile(fraction)
    assert enough.low is not None


def test_infinite_samples_keep_the_ranks_of_the_others():
    samples = np.random.default_rng(2).random(5000)
    samples[::40] = np.inf  # 2.5 %
    figures = {f: CorrelatedSamples(samples).percentile(f) for f in (0.5, 0.95, 0.99)}
    assert figures[0.5].value == pytest.approx(0.51, abs=0.03)
    assert math.isfinite(figures[0.95].high)
    assert math.isinf(figures[0.99].value)


def test_equal_samples():
    figure = CorrelatedSamples(np.full(500, 3.0)).percentile(0.5)
    assert (figure.low, figure.high) == (3.0, 3.0)
    assert correlated_mean(CorrelatedSamples(np.full(500, 3.0)))[:3] == (3.0, 3.0, 3.0)


def autoregressive(count, correlation, random):
    noise = random.normal(size=count + 200)
    for index in range(1, noise.size):
        noise[index] += correlation * noise[index - 1]
    return noise[200:]


@pytest.mark.thorough
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_intervals_cover_the_truth_under_correlation(correlation):
    random = np.random.default_rng(4)
    scale = 1 / math.sqrt(1 - correlation**2)
    held_median, held_mean, held_p90 = [], [], []
    for _ in range(100):
        x = autoregressive(6000, correlation, random)
        samples = CorrelatedSamples(x)
        median, p90, mean = (
            samples.percentile(0.5),
            samples.percentile(0.9),
            correlated_mean(samples),
        )
        held_median.append(median.low <= 0 <= median.high)
        held_p90.append(p90.low <= 1.2816 * scale <= p90.high)
        held_mean.append(mean.low <= 0 <= mean.high)
    assert min(map(np.mean, (held_median, held_p90, held_mean))) > 0.93


def test_a_share_of_independent_events_by_clopper_and_pearson():
    low, high = share_interval(0.1, 100)
    assert low == pytest.approx(stats.beta.ppf(0.025, 10, 91))
    assert high == pytest.approx(stats.beta.ppf(0.975, 11, 90))
    assert share_interval(0.0, 100) == (0.0, pytest.approx(1 - 0.025**0.01))
    assert share_interval(1.0, 100) == (pytest.approx(0.025**0.01), 1.0)


def test_a_single_block_of_failures_says_less_than_as_many_apart():
    apart, block = np.zeros(1000, bool), np.zeros(1000, bool)
    apart[::20] = True
    block[300:350] = True
    assert correlated_share(apart)[0] == correlated_share(block)[0] == 0.05
    assert correlated_share(apart)[2] < 0.08
    assert correlated_share(block)[2] > 0.3


def test_the_share_above_a_limit_needs_no_least_count():
    """In one long queue all samples are above: one event, whose share is anything above 2.5 %."""
    samples = CorrelatedSamples(1000 + np.linspace(0, 1, 300))
    share, low, high = samples.share_above(5.0)
    assert share == 1.0
    assert 0.02 < low < 0.2
    assert high == 1.0
