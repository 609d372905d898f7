"""One look: when there are samples enough, and each reason why there are not."""

import itertools

import numpy as np

from torchgauge.analyze.latency.stopping import look, look_counts


def noise(count, spread=0.03, seed=0):
    return 0.01 * np.exp(spread * np.random.default_rng(seed).normal(size=count))


def test_looks_grow_by_half():
    assert list(itertools.islice(look_counts(), 6)) == [100, 150, 225, 337, 506, 759]


def test_little_noise_is_enough():
    found = look(noise(150), 0.01)
    assert found.enough
    assert 0 < found.relative_error <= 0.01


def test_wide_interval_is_not_enough():
    found = look(noise(150), 0.001)
    assert not found.enough
    assert found.relative_error > 0.001


def test_unsteady_is_not_enough():
    """The first half 0.1 % slower: within the target, and no end of the warm-up."""
    samples = noise(400, spread=1e-5)
    samples[:200] *= 1.001
    assert look(samples, 0.5, warmup=200).enough
    assert not look(samples, 0.5).enough


def test_correlated_samples_are_not_enough():
    """Four samples in a row alike: n < 50·τ' at n = 100, whatever the interval."""
    samples = np.repeat(noise(25, spread=1e-4), 4)
    assert look(samples, 0.5).relative_error < 0.001
    assert not look(samples, 0.5).enough


def test_given_and_least_warmup_are_left_out():
    samples = np.concatenate([noise(100, spread=1.0), noise(100, spread=0.02)])
    assert not look(samples, 0.01, warmup=0).enough
    assert look(samples, 0.01, warmup=100).enough
    assert look(samples, 0.01, least_warmup=100).enough


def test_given_warmup_keeps_what_the_data_would_leave_out():
    samples = noise(400)
    samples[:60] *= 1.3
    assert look(samples, 0.01, warmup=0).relative_error > 2 * look(samples, 0.01).relative_error


def test_zeros_of_a_coarse_clock_have_no_relative_error():
    assert look([0.0] * 100, 0.01) == (False, None, 0.0)
