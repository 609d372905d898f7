"""Speed-ups from blocks, by figures worked out by hand."""

import math

import pytest

from torchgauge.analyze.advice.speed_up import (
    FEWEST_CONFIRMING,
    MOST_CONFIRMING,
    break_even,
    confirming_blocks,
    gain_p,
    layers_helped,
    speed_up,
)


def test_the_interval_is_that_of_the_mean_difference_turned_round():
    # Mean −0.2, deviation 0.1, t(2 degrees, 97.5 %) = 4.30265.
    found = speed_up([-0.1, -0.2, -0.3], 0.012, 0.01)
    reach = 4.30265 * 0.1 / math.sqrt(3)
    assert found.value == pytest.approx(math.exp(0.2))
    assert found.interval.low == pytest.approx(math.exp(0.2 - reach), rel=1e-5)
    assert found.interval.high == pytest.approx(math.exp(0.2 + reach), rel=1e-5)
    assert found.blocks == 3


def test_p_is_of_a_gain_beyond_the_minimum():
    gain = math.log(1.01)
    assert gain_p([-gain - 0.01, -gain + 0.01]) == pytest.approx(0.5)
    assert gain_p([-0.30, -0.31, -0.29, -0.30]) < 1e-4
    assert gain_p([0.30, 0.31, 0.29, 0.30]) > 0.999


def test_a_one_off_cost_is_earned_back_in_whole_calls():
    gains = speed_up([-0.1, -0.2], 0.012, 0.010)
    assert break_even(1.0, gains) == 500
    assert break_even(1.001, gains) == 501
    assert break_even(None, gains) is None
    assert break_even(1.0, speed_up([0.1, 0.2], 0.010, 0.012)) is None


def test_a_budget_gives_as_many_blocks_as_fit_within_bounds():
    assert confirming_blocks(160.0, 2, 10.0) == 8
    assert confirming_blocks(10.0, 2, 10.0) == FEWEST_CONFIRMING
    assert confirming_blocks(1e6, 2, 10.0) == MOST_CONFIRMING


def test_layers_that_surely_got_faster_are_named_by_what_they_save():
    changes = {"a": -0.50, "b": -0.10, "slower": 0.3, "same": 0.0, "once": -1.0}
    blocks = [
        {path: (-e, d + e, d + e / 2, e) for path, d in changes.items()}
        for e in (-0.01, 0.0, 0.01, 0.005)
    ]
    del blocks[0]["once"]
    seconds = [{"a": 0.001, "b": 0.010, "slower": 0.1, "same": 0.1}] * 4
    found = layers_helped(blocks, seconds)
    assert [one.path for one in found] == ["b", "a"]
    assert found[1].change == pytest.approx(math.expm1(-0.49906), rel=1e-4)
    assert found[1].seconds == pytest.approx(0.001 * found[1].change)
    assert layers_helped(blocks[:2], seconds) == ()
