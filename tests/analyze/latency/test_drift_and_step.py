"""Drift and steps: found where they are, not excused by the τ they cause, seldom imagined."""

import numpy as np
import pytest

from torchgauge.analyze.latency.drift import find_drift, find_step
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time, noise_tau


def noise(count, correlation=0.0, seed=0, spread=0.04):
    """Return latencies about 10 ms with log-AR(1) noise."""
    rng = np.random.default_rng(seed)
    values, state = np.empty(count), rng.normal()
    for i, fresh in enumerate(rng.normal(size=count)):
        state = correlation * state + np.sqrt(1 - correlation**2) * fresh
        values[i] = state
    return 0.01 * np.exp(spread * values)


def stepped(count, at, correlation=0.0, seed=0):
    samples = noise(count, correlation, seed)
    samples[at:] *= 1.1
    return samples


def test_slope_of_a_straight_line():
    """From 1 to 2 in 200 samples: batch medians 10/199 apart, 19 steps, about a median of 1.5."""
    samples = np.linspace(1, 2, 200)
    found = find_drift(samples + np.resize([1e-6, -1e-6], 200))
    assert found.change == pytest.approx(19 * (10 / 199) / 1.5, rel=1e-4)
    assert found.significant


@pytest.mark.parametrize("seed", range(6))
def test_drift_is_that_of_theil_sen_and_kendall(seed):
    from scipy.stats import kendalltau, theilslopes

    samples = np.random.default_rng(seed).lognormal(size=400) + np.linspace(0, 0.1 * seed, 400)
    batches, time = np.median(samples.reshape(20, 20), axis=1), np.arange(20)
    found = find_drift(samples)
    slope = theilslopes(batches, time).slope
    assert found.change == pytest.approx(19 * slope / np.median(samples))
    assert found.p == pytest.approx(kendalltau(time, batches, method="exact").pvalue)


def test_falling_latency_has_a_negative_change():
    assert find_drift(np.linspace(2, 1, 200) + np.resize([1e-6, -1e-6], 200)).change < 0
    assert find_step(stepped(300, 100)[::-1]).change < 0


def test_step_is_found_where_it_is():
    found = find_step(stepped(300, 200))
    assert found.sample_index == pytest.approx(200, abs=5)
    assert found.change == pytest.approx(0.1, abs=0.02)


def test_step_does_not_excuse_itself():
    samples = stepped(400, 200)
    assert autocorrelation_time(samples) > 20
    assert noise_tau(samples) < 2
    assert find_drift(samples).significant
    assert find_step(samples) is not None


def test_line_does_not_excuse_itself():
    samples = noise(400, spread=0.01) * np.linspace(1, 1.3, 400)
    assert autocorrelation_time(samples) > 20
    assert noise_tau(samples) < 2
    assert find_drift(samples).change == pytest.approx(0.25, abs=0.03)


def test_short_correlated_run_has_no_drift_to_tell():
    assert find_drift(noise(200, 0.8)) is None


@pytest.mark.parametrize("count", [0, 1, 2, 99])
def test_too_few_samples(count):
    assert find_drift([0.01] * count) is None
    assert find_step([0.01] * count) is None


@pytest.mark.parametrize("value", [0.0, 0.01])
def test_equal_samples_do_not_move(value):
    assert find_step([value] * 200) is None
    found = find_drift([value] * 200)
    assert found is None or not found.significant


def test_zeros_of_a_coarse_clock_do_not_crash():
    samples = np.repeat([0.0, 1e-7], 100)
    step, drift = find_step(samples), find_drift(samples)
    assert step is None or np.isfinite(step.change)
    assert drift is None or np.isfinite(drift.change)


@pytest.mark.parametrize(
    ("correlation", "count"),
    [
        (0.5, 150),
        *(
            pytest.param(correlation, count, marks=pytest.mark.thorough)
            for correlation, count in ((0.0, 150), (0.8, 150), (0.0, 600), (0.5, 600), (0.8, 600))
        ),
    ],
)
def test_false_alarms_are_few(correlation, count):
    """At 1 % each, 8 of 200 come in one test of 1,500."""
    runs = [noise(count, correlation, seed) for seed in range(200)]
    drifts = [find_drift(run) for run in runs]
    assert sum(found is not None and found.significant for found in drifts) <= 8
    assert sum(find_step(run) is not None for run in runs) <= 8


@pytest.mark.parametrize(("correlation", "count"), [(0.0, 100), (0.5, 200), (0.8, 400)])
def test_step_in_mid_run_is_found(correlation, count):
    runs = [stepped(count, count // 2, correlation, seed) for seed in range(100)]
    assert sum(find_step(run) is not None for run in runs) >= 90
