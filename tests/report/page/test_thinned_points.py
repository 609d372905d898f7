"""Thinned points: every one is true, none of the extremes is lost, and the counts add up."""

import numpy as np
import pytest

from torchgauge.report.page.serving.request_times import thinned

RANDOM = np.random.default_rng(4)
MANY = 50_000


@pytest.fixture(scope="module")
def cloud():
    x = np.sort(RANDOM.uniform(0, 600, MANY))
    y = 0.01 * RANDOM.lognormal(0, 0.8, MANY)
    y[12_345] = 9.0  # a pause
    y[40_000] = 1e-5
    return x, y


def test_few_points_are_all_drawn_each_for_itself():
    shown = thinned(np.array([1.0, 2.0, 3.0]), np.array([5.0, 1.0, 2.0]), 3)
    assert shown.indices.tolist() == [0, 1, 2]
    assert shown.counts.tolist() == [1, 1, 1]


@pytest.mark.parametrize("most", [400, 2_000, 20_000])
def test_no_more_points_than_asked_for_stand_for_all(cloud, most):
    shown = thinned(*cloud, most)
    assert most / 3 < len(shown.indices) <= most
    assert shown.counts.sum() == MANY
    assert shown.counts.min() >= 1
    assert (np.diff(shown.indices) > 0).all()


def test_the_slowest_and_the_fastest_of_every_moment_are_drawn(cloud):
    x, y = cloud
    shown = thinned(x, y, 2_000)
    assert {12_345, 40_000} <= set(shown.indices.tolist())
    near = x.max() / 50  # wider than a column of the grid
    for begin in np.linspace(0, x.max() * 0.95, 20):
        inside = y[(begin <= x) & (x <= begin + near)]
        drawn_x, drawn_y = x[shown.indices], y[shown.indices]
        drawn = drawn_y[(begin - near <= drawn_x) & (drawn_x <= begin + 2 * near)]
        assert drawn.max() >= inside.max()
        assert drawn.min() <= inside.min()


def test_points_that_are_all_alike_are_few():
    shown = thinned(np.zeros(1_000), np.full(1_000, 0.5), 100)
    assert shown.indices.tolist() != []
    assert len(shown.indices) <= 2
    assert shown.counts.sum() == 1_000


def test_of_points_at_one_place_the_slowest_and_the_fastest_are_drawn():
    y = RANDOM.permutation(np.linspace(0.5, 0.6, 100))
    shown = thinned(np.zeros(100), y, 4)
    assert {y[index] for index in shown.indices} >= {0.5, 0.6}
