"""Changes of level against series made by hand, and against noise without any."""

import math

import numpy as np
import pytest

from torchgauge.analyze.statistics.change_points import changes, exact_changes

RIPPLE = (1.01, 0.995, 1.0, 0.99, 1.005)


def series(*parts):
    """Return levels with ±1 % of ripple: (10.0, 30) is thirty runs about 10."""
    levels = [level for level, count in parts for _ in range(count)]
    return [level * RIPPLE[i % len(RIPPLE)] for i, level in enumerate(levels)]


def shown(found):
    return [(change.start, round(change.size, 2), change.lasting) for change in found]


def test_a_step_is_found_where_it_is_and_as_large_as_it_is():
    (found,) = changes(series((10.0, 30), (10.5, 30)))
    assert found.start == 30
    assert found.first < 30 <= found.last
    assert found.last - found.first <= 4
    assert found.size == pytest.approx(0.05, abs=1e-3)  # the ripple is alike on both sides
    assert found.interval.low < 0.05 < found.interval.high
    assert found.interval.high - found.interval.low < 0.02


def test_a_large_step_has_one_place():
    (found,) = changes(series((10.0, 20), (8.0, 20)))
    assert (found.first, found.start, found.last) == (19, 20, 20)
    assert found.size == pytest.approx(-0.2)


def test_a_level_that_stays_has_no_change():
    assert changes(series((10.0, 60))) == []
    assert changes([10.0] * 60) == []


def test_exactly_constant_levels_are_told_apart():
    assert shown(changes([10.0] * 10 + [10.2] * 10)) == [(10, 0.02, "stays")]


def test_what_is_too_small_is_not_spoken_of():
    assert changes([10.0] * 20 + [10.05] * 20) == []
    (found,) = changes([10.0] * 20 + [10.05] * 20, smallest=0.001)
    assert found.size == pytest.approx(0.005)


def test_a_spike_is_no_level():
    values = series((10.0, 40))
    values[17] *= 3
    values[30] *= 1.5
    assert changes(values) == []


def test_spikes_do_not_hide_a_step():
    values = series((10.0, 30), (10.5, 30))
    values[10] *= 2
    values[50] *= 2
    (found,) = changes(values)
    assert abs(found.start - 30) <= 1


def test_what_went_away_is_marked():
    found = changes(series((10.0, 20), (11.0, 10), (10.0, 20)))
    assert shown(found) == [(20, 0.1, "went away"), (30, -0.09, "return")]


def test_what_came_back_for_good_stays():
    found = changes(series((10.0, 20), (11.0, 10), (10.0, 20), (11.0, 20)))
    assert [change.lasting for change in found] == ["went away", "return", "stays"]


def test_two_steps_the_same_way_both_stay():
    found = changes(series((10.0, 20), (11.0, 20), (12.0, 20)))
    assert shown(found) == [(20, 0.1, "stays"), (40, 0.09, "stays")]


def test_a_plateau_between_takes_all_with_it():
    """Up, further up, and back down to the first level: none of it is left."""
    found = changes(series((10.0, 20), (11.0, 20), (12.0, 20), (10.0, 20)))
    assert [change.lasting for change in found] == ["went away", "went away", "return"]


def test_fewer_than_ten_runs_tell_nothing():
    assert changes([1.0] * 4 + [9.0] * 5) == []
    assert shown(changes([1.0] * 5 + [9.0] * 5)) == [(5, 8.0, "stays")]


def test_many_series_together_need_more_evidence():
    rng = np.random.default_rng(2)
    noisy = 10 * np.exp(rng.normal(0, 0.015, 60) + np.repeat([0, 0.0235], 30))
    alone = changes(noisy)
    assert len(alone) == 1
    assert changes(noisy, series=100_000) == []


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_noise_alone_rarely_looks_like_a_change(correlation):
    """benchmarks/history_trends.py has the rates with their intervals."""
    rng = np.random.default_rng(11)
    alarms = 0
    for _ in range(150):
        noise = np.zeros(60)
        for i in range(1, 60):
            noise[i] = correlation * noise[i - 1] + rng.normal(0, 0.015)
        alarms += bool(changes(np.exp(noise)))
    assert alarms <= 3


def test_exact_figures_change_exactly():
    found = exact_changes([5, 5, 7, 7, 5])
    assert [(c.first, c.start, c.last, c.interval) for c in found] == [
        (1, 2, 2, None),
        (3, 4, 4, None),
    ]
    assert [c.size for c in found] == pytest.approx([0.4, 5 / 7 - 1])
    assert [c.lasting for c in found] == ["went away", "return"]
    assert exact_changes([]) == exact_changes([3]) == exact_changes([3, 3]) == []
    assert exact_changes([0, 4])[0].size == 1.0
    assert math.isclose(exact_changes([4, 0])[0].size, -1.0)


def test_a_level_that_was_left_for_good_is_no_way_back():
    """After 10 → 11 → 12 → 10 all is forgotten: 11 later on is a level of its own."""
    parts = ((10.0, 20), (11.0, 20), (12.0, 20), (10.0, 20), (13.0, 20), (11.0, 20))
    states = [change.lasting for change in changes(series(*parts))]
    assert states == ["went away", "went away", "return", "stays", "stays"]
