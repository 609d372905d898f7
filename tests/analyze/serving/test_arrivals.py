"""Schedules: their rates, their variation, and what is refused."""

import math

import numpy as np
import pytest

from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.errors import InputError
from torchgauge.records.serving.level import Arrivals


def test_constant_requests_are_equally_far_apart_from_the_begin():
    times = schedule(Arrivals(kind="constant", rate=4), duration=1.1)
    assert times.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("arrivals", "variation"),
    [
        (Arrivals(kind="poisson", rate=200), 1.0),
        (Arrivals(kind="gamma", rate=200, variation=3), 3.0),
        (Arrivals(kind="gamma", rate=200, variation=0.2), 0.2),
    ],
)
def test_random_requests_have_their_rate_and_variation(arrivals, variation):
    times = schedule(arrivals, duration=1000)
    gaps = np.diff(times)
    assert times.size == 200_000
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03)
    assert (gaps >= 0).all()
    assert times[-1] < 1000


def test_a_seed_gives_one_schedule_that_a_rate_stretches():
    slow, fast, timed = (
        schedule(Arrivals(kind="poisson", rate=rate, seed=7), duration=duration, count=count)
        for rate, duration, count in ((10, 1000, 50), (20, 1000, 50), (10, 5, None))
    )
    assert np.allclose(slow, 2 * fast)
    assert np.allclose(slow, timed)
    other = schedule(Arrivals(kind="poisson", rate=10, seed=8), duration=1000, count=50)
    assert not np.allclose(slow, other)


@pytest.mark.parametrize("arrivals", [{"kind": "poisson"}, {"kind": "gamma", "variation": 4}])
@pytest.mark.parametrize(
    ("rate", "duration", "number"), [(100, 1, 100), (7.3, 10, 73), (2, 0.7, 1)]
)
def test_as_many_requests_are_due_as_the_rate_asks_for(arrivals, rate, duration, number):
    for seed in range(8):
        load = Arrivals(**arrivals, rate=rate, seed=seed)
        times = schedule(load, duration=duration)
        assert times.size == number
        assert (np.diff(times) >= 0).all()
        assert 0 <= times[0] <= times[-1] <= duration
        if arrivals["kind"] == "poisson":  # a draw without that knowledge: ± 2.7 of 73
            assert abs((times < 0.1 * duration).sum() - 0.1 * number) <= 2


def test_requests_of_a_given_number_are_poisson_still():
    """Between two halves they divide as coins do, and gaps are exponential: e⁻¹ exceed the mean."""
    halves, long_gaps = [], []
    for seed in range(400):
        times = schedule(Arrivals(kind="poisson", rate=100, seed=seed), duration=1.0)
        steady = times[times >= 0.1]
        halves.append((steady < 0.55).sum())
        long_gaps.append((np.diff(steady) > 0.01).mean())
    assert np.mean(halves) == pytest.approx(45, abs=0.7)
    assert np.var(halves) == pytest.approx(90 / 4, rel=0.25)
    assert np.mean(long_gaps) == pytest.approx(math.exp(-1), abs=0.01)


def test_a_recorded_schedule_begins_at_zero_and_is_stretched_to_a_rate():
    recorded = [105.0, 101.0, 102.0]
    as_it_was = schedule(Arrivals(kind="file"), duration=60, recorded=recorded)
    assert as_it_was.tolist() == [0.0, 1.0, 4.0]
    faster = schedule(Arrivals(kind="file", rate=5), duration=60, recorded=recorded)
    assert faster.tolist() == pytest.approx([0.0, 0.1, 0.4])


def test_a_closed_loop_has_no_schedule_and_all_at_once_is_due_at_the_begin():
    assert schedule(Arrivals(kind="closed", users=4), duration=9).size == 0
    assert schedule(Arrivals(kind="at once"), duration=9, count=3).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arrivals", "options"),
    [
        (Arrivals(kind="poisson"), {}),
        (Arrivals(kind="poisson", rate=0), {}),
        (Arrivals(kind="constant", rate=-1), {}),
        (Arrivals(kind="gamma", rate=5), {}),
        (Arrivals(kind="gamma", rate=5, variation=0), {}),
        (Arrivals(kind="poisson", rate=1e9), {}),
        (Arrivals(kind="file"), {}),
        (Arrivals(kind="file"), {"recorded": [0.0, float("nan")]}),
        (Arrivals(kind="file", rate=3), {"recorded": [1.0, 1.0]}),
    ],
)
def test_arrivals_that_make_no_schedule_are_refused(arrivals, options):
    with pytest.raises(InputError) as refusal:
        schedule(arrivals, duration=60, **options)
    assert refusal.value.id == "arrivals-invalid"
    assert refusal.value.remedy
