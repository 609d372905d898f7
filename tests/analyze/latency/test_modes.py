"""Several modes: found in mixtures, not imagined in skewed, heavy-tailed or correlated samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.latency.drift import find_modes
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time


def mixture(count, share, distance, seed=0):
    """Return 10 ms with 2 % noise, a share of it `distance` noises slower."""
    rng = np.random.default_rng(seed)
    slow = rng.random(count) < share
    return 0.01 * (1 + 0.02 * (rng.normal(size=count) + distance * slow))


SINGLE = {
    "normal": lambda rng, n: 1 + 0.05 * rng.normal(size=n),
    "lognormal": lambda rng, n: np.exp(0.5 * rng.normal(size=n)),
    "gamma": lambda rng, n: rng.gamma(2, size=n),
    "exponential": lambda rng, n: 1 + rng.exponential(size=n),
    "student": lambda rng, n: 50 + rng.standard_t(3, size=n),
}


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("count", [60, 200, 2000])
def test_one_mode_is_one(kind, count):
    rng = np.random.default_rng(count)
    found = sum(find_modes(SINGLE[kind](rng, count)) is not None for _ in range(150))
    assert found <= 6


@pytest.mark.parametrize(
    ("share", "distance", "count"), [(0.5, 5, 150), (0.5, 4, 500), (0.2, 6, 300), (0.2, 5, 600)]
)
def test_two_modes_are_two(share, distance, count):
    found = [find_modes(mixture(count, share, distance, seed)) for seed in range(50)]
    assert sum(modes is not None for modes in found) >= 43


def test_modes_say_where_and_how_many():
    found = find_modes(mixture(2000, 0.2, 8))
    assert found.faster == pytest.approx(0.01, rel=0.005)
    assert found.slower == pytest.approx(0.0116, rel=0.005)
    assert found.faster < found.valley < found.slower
    assert found.slower_share == pytest.approx(0.2, abs=0.03)


def test_long_stays_in_two_states_do_not_excuse_themselves():
    samples = mixture(600, 0.0, 0)
    samples[(np.arange(600) // 60) % 2 == 1] *= 1.2
    assert autocorrelation_time(samples) > 20
    assert find_modes(samples) is not None


def test_slow_noise_makes_no_modes():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(150):
        state, values = rng.normal(), []
        for fresh in rng.normal(size=300):
            state = 0.8 * state + 0.6 * fresh
            values.append(state)
        found += find_modes(np.exp(0.05 * np.array(values))) is not None
    assert found <= 6


def test_modes_nearer_than_a_percent_do_not_matter():
    rng = np.random.default_rng(0)
    samples = np.where(rng.random(500) < 0.5, 1.0, 1.005) + 1e-5 * rng.normal(size=500)
    assert find_modes(samples) is None
    assert find_modes(np.where(samples > 1.0025, 1.02, 1.0) + (samples - 1) / 100) is not None


def test_a_few_slow_calls_are_a_tail():
    assert find_modes(mixture(1000, 0.03, 20)) is None


def test_ticks_of_a_coarse_clock_are_no_modes():
    samples = np.round(np.random.default_rng(0).normal(10.5, 1.2, size=1000)) * 1e-6
    assert len(set(samples)) < 12
    assert find_modes(samples) is None


def test_modes_two_ticks_apart_are_the_clock():
    near, apart = (np.repeat([20, 20 + gap], 200) * 1e-8 for gap in (2, 3))
    near[0] = apart[0] = 21e-8
    assert find_modes(near) is None
    assert find_modes(apart) is not None


def test_modes_are_seen_through_a_coarse_clock():
    rng = np.random.default_rng(0)
    samples = np.round(rng.normal(np.where(rng.random(500) < 0.3, 30, 20), 1.2)) * 1e-6
    found = find_modes(samples)
    assert found.faster == pytest.approx(20e-6)
    assert found.slower == pytest.approx(30e-6)


@pytest.mark.parametrize("samples", [[], [1.0], [1.0] * 59, [1.0, 9.0] * 29, [0.0] * 100])
def test_nothing_to_tell(samples):
    assert find_modes(samples) is None


@pytest.mark.thorough
@given(st.lists(st.floats(0, 1e6), min_size=60, max_size=150))
def test_any_samples_give_an_answer(samples):
    found = find_modes(samples)
    if found is not None:
        assert min(samples) <= found.faster < found.valley < found.slower <= max(samples)
