"""The permutation test on blocks, against figures worked out by hand and what must always hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.statistics.paired import ASSIGNMENTS, BlockTest


def slower(by, noise, rng, blocks):
    """Return blocks of normal noise in which B takes e^by as long."""
    values = noise * rng.standard_normal((blocks, 4))
    values[:, 1:3] += by
    return [tuple(four) for four in values]


def test_the_assignments_are_all_pairs_and_the_first_is_the_one_that_was_run():
    assert ASSIGNMENTS[0].tolist() == [-0.5, 0.5, 0.5, -0.5]
    assert len({tuple(one) for one in ASSIGNMENTS}) == math.comb(4, 2)
    assert not ASSIGNMENTS.sum(axis=1).any()


def test_one_block_has_six_assignments():
    # d is 3 as run, −3 turned round, and 1, 0, 0 or −1 where one of each build is exchanged.
    found = BlockTest([(0.0, 3.0, 4.0, 1.0)])
    assert found.mean == 3.0
    assert found.p_above(0.0) == 1 / 6
    assert found.p == 2 / 6
    # An exchange halves no change of B: the largest of the others is reached by 3 − 1.
    assert found.p_above(2.0 - 1e-6) == 1 / 6
    assert found.p_above(2.0) == 2 / 6


def test_three_blocks_whose_builds_do_not_overlap_are_the_rarest_of_216():
    found = BlockTest([(0.0, 0.5, 0.6, 0.1), (1.0, 1.5, 1.4, 1.1), (-1.0, -0.5, -0.4, -0.9)])
    assert found.p_above(0.0) == 1 / 216 < 0.005
    assert found.mean == pytest.approx((0.5 + 0.4 + 0.5) / 3)


def test_without_noise_there_is_no_doubt():
    found = BlockTest([(0.0, 0.1, 0.1, 0.0)] * 4)
    assert found.bounds(0.975) == pytest.approx((0.1, 0.1))
    assert found.interval().low == pytest.approx(math.expm1(0.1))
    assert BlockTest([(0.0,) * 4] * 4).p == 1.0


def test_two_blocks_have_no_interval():
    # Of 36 assignments none is as rare as 2.5 %.
    assert BlockTest([(0.0, 0.5, 0.6, 0.1)] * 2).interval() is None


def test_a_block_that_others_tore_apart_counts_for_little():
    rng = np.random.default_rng(3)
    blocks = slower(0.1, 0.01, rng, 5)
    torn = BlockTest([*blocks, (2.0, 0.0, 0.1, 1.5)])
    assert torn.mean == pytest.approx(BlockTest(blocks).mean, abs=0.01)
    assert torn.p_above(0.01) < 0.005


NOISE = st.lists(st.tuples(*[st.floats(-0.5, 0.5, width=32)] * 4), min_size=3, max_size=4)


@given(NOISE, st.floats(0.01, 0.3))
def test_the_test_and_its_bounds_agree(blocks, bound):
    found = BlockTest(blocks)
    assert found.p_above(bound) >= found.p_above(0.0) >= 6.0 ** -len(blocks)
    if (interval := found.interval()) is not None:
        low = math.log1p(interval.low)
        assert found.p_above(low - 1e-6) <= 0.025 < found.p_above(low + 1e-6)
        assert low <= math.log1p(interval.high)


@given(NOISE)
def test_the_builds_are_alike(blocks):
    turned = [(b, a, d, c) for a, b, c, d in blocks]
    found, other = BlockTest(blocks), BlockTest(turned)
    assert found.mean == pytest.approx(-other.mean, abs=1e-9)
    assert found.bounds(0.975)[0] == pytest.approx(-other.bounds(0.975)[1], abs=1e-9)
    assert found.p == pytest.approx(other.p)


@pytest.mark.thorough
@pytest.mark.parametrize("blocks", [3, 5, 8])
def test_false_alarms_are_kept_whatever_the_noise(blocks):
    """Noise without a variance, and blocks that are 1 to 20 times as noisy as others."""
    rng = np.random.default_rng(blocks)
    alarms = 0
    for _ in range(1_000):
        scale = np.exp(rng.normal(0.0, 1.0, (blocks, 1)))
        noise = 0.1 * scale * rng.standard_t(1.2, (blocks, 4))
        alarms += BlockTest([tuple(four) for four in noise]).p_above(0.0) <= 0.005
    assert alarms <= 14  # 5 are expected, and more than 14 in one of 5,000 such tests


def test_the_deviation_is_that_of_d():
    rng = np.random.default_rng(7)
    found = [BlockTest(slower(0.0, 0.02, rng, 8)).deviation for _ in range(50)]
    assert np.mean(found) == pytest.approx(0.02, rel=0.1)  # d is half a sum of four
    found = [BlockTest(slower(0.3, 0.02, rng, 8)).deviation for _ in range(50)]
    assert np.mean(found) == pytest.approx(0.02, rel=0.1)  # and the change is no part of it
