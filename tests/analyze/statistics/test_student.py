"""Student's t on differences, against figures worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.statistics.paired import estimate, p_value

D0 = math.log(1.01)
DIFFERENCES = st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=12)


def test_the_bounds_are_those_of_t():
    found = estimate([0.01, 0.02, 0.03])
    # t at 97.5 % with 2 degrees of freedom is 4.302653; s = 0.01.
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert found.mean == pytest.approx(0.02)
    assert (found.low, found.high) == pytest.approx((0.02 - reach, 0.02 + reach), rel=1e-6)
    assert found.interval.high == pytest.approx(math.expm1(0.02 + reach), rel=1e-6)


def test_no_spread_is_no_doubt():
    assert p_value([0.02, 0.02], D0) == 0.0
    assert p_value([0.0, 0.0], D0) == 1.0


@given(DIFFERENCES)
def test_the_one_sided_test_and_its_bound_agree(differences):
    found = estimate(differences)
    if found.deviation > 1e-9 and abs(found.low - D0) > 1e-9:
        assert (p_value(differences, D0) < 0.025) == (found.low > D0)


@given(DIFFERENCES)
def test_sides_are_alike(differences):
    one, other = estimate(differences), estimate([-d for d in differences])
    assert one.mean == pytest.approx(-other.mean, abs=1e-12)
    assert one.low == pytest.approx(-other.high, abs=1e-12)
