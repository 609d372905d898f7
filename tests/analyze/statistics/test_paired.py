"""The paired test against figures worked out by hand, and against what must always hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.statistics.paired import (
    Paired,
    blocks_for,
    blocks_to_decide,
    decide,
    estimate,
    p_value,
    rulings,
    sign_flip_p,
    signed,
)
from torchgauge.records.metric import METRICS
from torchgauge.records.verdict import Tolerance

D0, D1 = math.log(1.01), math.log(1.03)


def paired(differences, metric="latency", accepted=0.01, refused=0.03):
    tolerance = Tolerance(metric=metric, accepted=accepted, refused=refused)
    return Paired(METRICS[metric], "s", tuple(differences), tolerance, 1.0, 1.1)


def around(mean, spread=0.001, blocks=8):
    return [mean + spread * (-1) ** n for n in range(blocks)]


def test_the_bounds_are_those_of_t():
    found = estimate([0.01, 0.02, 0.03])
    # t at 97.5 % with 2 degrees of freedom is 4.302653; s = 0.01.
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert found.mean == pytest.approx(0.02)
    assert (found.low, found.high) == pytest.approx((0.02 - reach, 0.02 + reach), rel=1e-6)
    assert found.interval.high == pytest.approx(math.expm1(0.02 + reach), rel=1e-6)


@pytest.mark.parametrize(
    ("mean", "decision"),
    [(0.0, "pass"), (-0.2, "pass"), (0.05, "fail"), (D1 - 1e-4, "fail"), (D0 + 1e-4, "pass")],
)
def test_a_quiet_host_decides_at_once(mean, decision):
    assert decide([paired(around(mean))]) == [decision]


def test_what_fails_and_passes_at_once_fails():
    """At +2 % both conditions hold: the order of the rule decides."""
    differences = around(math.log(1.02))
    found = estimate(differences)
    assert found.low > D0
    assert found.high < D1
    assert decide([paired(differences)]) == ["fail"]


def test_a_loud_host_decides_nothing_and_says_how_many_blocks_would():
    loud = paired(around(0.015, spread=0.03))
    assert decide([loud]) == ["undecided"]
    (ruling,) = rulings([loud])
    assert ruling.outcome == "inconclusive"
    # s = 0.03·sqrt(8/7); the farther bound is ln 1.03 − 0.015 away.
    s = 0.03 * math.sqrt(8 / 7)
    width = max(0.015 - D0, D1 - 0.015)
    assert ruling.needed == math.ceil(((1.959964 + 1.281552) * s / width) ** 2) + 2
    assert "sign-flip p" in ruling.method


def test_the_bounds_of_a_ruling_are_of_the_change_for_the_worse():
    slower = rulings([paired(around(0.1))])[0]
    assert slower.outcome == "fail"
    assert slower.change == pytest.approx(math.expm1(0.1))
    assert slower.interval.low < slower.change < slower.interval.high


def test_of_a_throughput_less_is_worse():
    assert decide([paired(around(-0.1), "throughput")]) == ["fail"]
    assert decide([paired(around(0.1), "throughput")]) == ["pass"]
    assert rulings([paired(around(-0.1), "throughput")])[0].change == pytest.approx(math.expm1(0.1))


def test_several_metrics_need_more_evidence_each():
    """A p of 0.02 fails a metric alone, and not as one of two."""
    differences = around(D0 + 0.01, spread=0.01045)
    assert p_value(differences, D0) == pytest.approx(0.02, abs=0.002)
    alone = paired(differences, refused=0.02)
    assert decide([alone]) == ["fail"]
    assert decide([alone, paired(around(0.0), "p90")]) == ["undecided", "pass"]


def test_sign_flips_are_counted():
    assert sign_flip_p([0.1, 0.2, 0.3], 0.0) == 1 / 8
    assert sign_flip_p([-0.1, 0.2, 0.3], 0.0) == 2 / 8  # itself, and all positive
    assert sign_flip_p([0.1] * 20, 0.0) < 1e-3
    assert 0.4 < sign_flip_p([0.1, -0.1] * 10, 0.0) < 0.7


def test_no_spread_is_no_doubt():
    assert p_value([0.02, 0.02], D0) == 0.0
    assert p_value([0.0, 0.0], D0) == 1.0
    assert decide([paired([0.02] * 3)]) == ["fail"]


def test_the_plan_follows_from_the_noise():
    # ((1.959964 + 1.281552)·0.01 ÷ ln(1.03 ÷ 1.01))² = 2.73
    tolerance = Tolerance(metric="latency", accepted=0.01, refused=0.03)
    assert blocks_for(0.01, tolerance) == 3 + 2
    assert blocks_for(0.03, tolerance) == 25 + 2
    wider = Tolerance(metric="latency", accepted=0.01, refused=0.10)
    assert blocks_for(0.03, wider) == 2 + 2


def test_a_change_is_signed_as_it_is_read():
    assert (signed(0.012), signed(-0.5), signed(0.0)) == ("+1.2 %", "−50 %", "+0 %")


DIFFERENCES = st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=12)


@given(DIFFERENCES, st.floats(0, 0.5))
def test_slower_is_never_better(differences, more):
    """A constant slowdown of B turns no fail into anything else, and nothing into a pass."""
    order = ["pass", "undecided", "fail"]
    before = decide([paired(differences)])[0]
    after = decide([paired([d + more for d in differences])])[0]
    if before == "pass" and after == "undecided":
        return
    assert order.index(after) >= order.index(before)


@given(DIFFERENCES)
def test_the_one_sided_test_and_its_bound_agree(differences):
    found = estimate(differences)
    if found.deviation > 1e-9 and abs(found.low - D0) > 1e-9:
        assert (p_value(differences, D0) < 0.025) == (found.low > D0)
        assert decide([paired(differences)])[0] == (
            "fail" if found.low > D0 else "pass" if found.high < D1 else "undecided"
        )


@given(DIFFERENCES)
def test_sides_are_alike(differences):
    one, other = estimate(differences), estimate([-d for d in differences])
    assert one.mean == pytest.approx(-other.mean, abs=1e-12)
    assert one.low == pytest.approx(-other.high, abs=1e-12)


@given(DIFFERENCES)
def test_sign_flips_give_a_probability(differences):
    p = sign_flip_p(differences, D0)
    assert 2.0 ** -len(differences) - 1e-12 <= p <= 1


@given(DIFFERENCES)
def test_who_is_undecided_needs_more_blocks(differences):
    one = paired(differences)
    if decide([one]) == ["undecided"]:
        assert blocks_to_decide(estimate(differences), one.tolerance) > len(differences)


@pytest.mark.thorough
def test_errors_are_kept_where_they_are_promised():
    """On normal noise: a false alarm at the boundary in 2.5 % of first looks, far fewer below."""
    rng = np.random.default_rng(1)
    noise = 0.01 * rng.standard_normal((2_000, 8))
    alarms = {
        mean: np.mean([decide([paired(row + mean)]) == ["fail"] for row in noise])
        for mean in (0.0, D0)
    }
    assert alarms[0.0] < 0.005
    assert 0.015 < alarms[D0] < 0.035
