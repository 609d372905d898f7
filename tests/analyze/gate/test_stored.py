"""A run against a stored one: Welch's test on logs, with what sessions add."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from torchgauge.analyze.gate.stored import HostNoise, uncalibrated, welch

A = (1.00, 1.02, 0.99, 1.01, 1.00, 0.98)
B = (1.10, 1.13, 1.09, 1.12, 1.08, 1.11)


def test_without_session_noise_it_is_scipys_test():
    found = welch(A, B)
    truth = stats.ttest_ind([math.log(b) for b in B], [math.log(a) for a in A], equal_var=False)
    assert found.p == pytest.approx(truth.pvalue)
    assert found.freedom == pytest.approx(truth.df)
    low, high = truth.confidence_interval(0.95)
    interval = found.interval()
    assert (interval.low, interval.high) == pytest.approx((math.expm1(low), math.expm1(high)))
    assert found.change == pytest.approx(0.105, abs=0.002)


def test_what_sessions_add_widens_the_interval_by_hand():
    """Equal processes have no spread of their own: all of the error is the sessions' √2·σ."""
    found = welch((1.0,) * 6, (1.1,) * 6, HostNoise(between=0.02, sessions=11))
    assert found.error == pytest.approx(math.sqrt(2) * 0.02)
    assert found.freedom == pytest.approx(10)
    reach = stats.t.ppf(0.975, 10) * math.sqrt(2) * 0.02
    assert found.interval().low == pytest.approx(math.expm1(math.log(1.1) - reach))


def test_a_host_never_calibrated_has_a_floor_of_a_fifth():
    assert uncalibrated().floor == pytest.approx(0.20)
    assert not uncalibrated().calibrated
    assert HostNoise(between=0.01, sessions=101).floor == pytest.approx(
        math.expm1(stats.t.ppf(0.975, 100) * math.sqrt(2) * 0.01)
    )


@pytest.mark.parametrize("side", [(), (1.0,), (1.0, 0.0), (1.0, -1.0)])
def test_too_few_or_impossible_figures_tell_nothing(side):
    assert welch(side, B) is None
    assert welch(B, side) is None


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=8), st.floats(0.01, 100))
def test_units_do_not_matter(values, factor):
    first = welch(values, B)
    second = welch([v * factor for v in values], [b * factor for b in B])
    assert second.estimate == pytest.approx(first.estimate, abs=1e-9)
    assert second.error == pytest.approx(first.error, abs=1e-9)


def test_false_alarms_come_as_often_as_promised():
    """Sessions and processes of a build that never changes: one in twenty is found different."""
    rng = random.Random(7)
    noise = HostNoise(between=0.02, sessions=1_001)

    def session():
        level = rng.gauss(0, 0.02)
        return [math.exp(level + rng.gauss(0, 0.01)) for _ in range(8)]

    alarms = sum(welch(session(), session(), noise).p < 0.05 for _ in range(2_000))
    low, high = stats.binomtest(alarms, 2_000).proportion_ci(0.999)
    assert low <= 0.05 <= high


def test_without_the_sessions_alarms_would_be_false_most_of_the_time():
    """What the session's variance is there for."""
    rng = random.Random(7)

    def session():
        level = rng.gauss(0, 0.02)
        return [math.exp(level + rng.gauss(0, 0.01)) for _ in range(8)]

    alarms = sum(welch(session(), session()).p < 0.05 for _ in range(300))
    assert alarms > 150
