"""The end of the warm-up: hand-made runs, the formula done by loops, and invariants."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.latency.stopping import WarmUp, find_warmup


def by_loops(samples):
    """Return MSER as the formula reads, batch of 5, without any vector arithmetic."""
    logs = [math.log(sample) for sample in samples]
    low, high = np.quantile(logs, (0.05, 0.95))
    logs = [min(max(log, low), high) for log in logs]
    z = [statistics.fmean(logs[5 * i : 5 * i + 5]) for i in range(len(logs) // 5)]
    scores = []
    for d in range(len(z) // 2 + 1):
        mean = statistics.fmean(z[d:])
        scores.append(sum((value - mean) ** 2 for value in z[d:]) / (len(z) - d) ** 2)
    best = min(range(len(scores)), key=scores.__getitem__)
    if best == len(z) // 2:
        return WarmUp(5 * best, end_found=False)
    return WarmUp(5 * (best + 1), end_found=True)


def test_equal_samples_lose_one_batch():
    assert find_warmup([0.01] * 100) == WarmUp(5, end_found=True)


def test_slow_start_is_left_out_with_one_batch_more():
    assert find_warmup([0.013] * 20 + [0.01] * 80) == WarmUp(25, end_found=True)


@pytest.mark.parametrize("slow", range(1, 45))
def test_no_sample_of_a_slow_start_stays_wherever_it_ends(slow):
    assert find_warmup([0.013] * slow + [0.01] * (100 - slow)).samples >= slow


def test_warmup_that_reaches_half_the_run_has_no_end():
    assert find_warmup([0.013] * 55 + [0.01] * 45) == WarmUp(50, end_found=False)


def test_one_spike_is_no_warmup():
    samples = [0.01] * 45 + [0.5] + [0.01] * 54
    assert find_warmup(samples) == WarmUp(5, end_found=True)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_nothing_is_known_of_a_handful(count):
    assert find_warmup([0.02] + [0.01] * (count - 1)) == WarmUp(0, end_found=False)


def test_ten_samples_are_batched_singly():
    assert find_warmup([0.013] * 2 + [0.01] * 8) == WarmUp(3, end_found=True)


def test_zeros_of_a_coarse_clock_do_not_crash():
    with np.errstate(all="raise"):
        assert find_warmup([0.0] * 50) == WarmUp(5, end_found=True)
        assert find_warmup([4e-6] * 20 + [0.0, 1e-6] * 40) == WarmUp(25, end_found=True)


@given(st.integers(0, 10_000), st.integers(50, 200), st.integers(0, 100))
def test_agrees_with_the_formula(seed, count, slow):
    samples = np.exp(np.random.default_rng(seed).normal(size=count) * 0.05) * 0.01
    samples[:slow] *= 1.2
    assert find_warmup(samples) == by_loops(samples)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=120), st.sampled_from([0.5, 4.0, 1024]))
def test_unit_does_not_matter_and_half_is_the_bound(samples, factor):
    found = find_warmup(samples)
    assert 0 <= found.samples <= len(samples) / 2
    if len(set(samples)) == len(samples):
        assert find_warmup(np.array(samples) * factor) == found
