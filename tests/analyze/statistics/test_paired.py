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
    hopeless,
    rulings,
    signed,
)
from torchgauge.records.metric import METRICS
from torchgauge.records.verdict import Tolerance

D0, D1 = math.log(1.01), math.log(1.03)


def paired(logs, metric="latency", accepted=0.01, refused=0.03):
    tolerance = Tolerance(metric=metric, accepted=accepted, refused=refused)
    return Paired(METRICS[metric], "s", tuple(logs), tolerance, 1.0, 1.1)


def around(mean, spread=0.001, blocks=8):
    """Return blocks whose d are `mean` and half of `spread` to either side in turn."""
    noise = [spread * (-1) ** n for n in range(blocks)]
    return [(-e, mean + e, mean, e) for e in noise]


@pytest.mark.parametrize(
    ("mean", "decision"),
    [(0.0, "pass"), (-0.2, "pass"), (0.05, "fail"), (D1 - 1e-4, "fail"), (D0 + 1e-4, "pass")],
)
def test_a_quiet_host_decides_at_once(mean, decision):
    assert decide([paired(around(mean))]) == [decision]


def test_what_fails_and_passes_at_once_fails():
    """At +2 % both conditions hold: the order of the rule decides."""
    differences = around(math.log(1.02))
    low, high = paired(differences).worse.bounds(0.975)
    assert D0 < low < high < D1
    assert decide([paired(differences)]) == ["fail"]


def test_a_loud_host_decides_nothing_and_says_how_many_blocks_would():
    loud = paired(around(0.015, spread=0.03))
    assert decide([loud]) == ["undecided"]
    (ruling,) = rulings([loud], 16)
    assert ruling.outcome == "inconclusive"
    # The farther bound is ln 1.03 − d away.
    width = max(loud.worse.mean - D0, D1 - loud.worse.mean)
    z = 1.959964 + 1.281552
    assert ruling.needed == math.ceil((z * loud.worse.deviation / width) ** 2) + 2 > 16
    # With a δ1 as wide as sixteen blocks tell from δ0.
    refused = 1.01 * math.exp(z * loud.worse.deviation / math.sqrt(14)) - 1
    assert f"16 blocks could decide latency:1%:{100 * refused:.3g}%" in ruling.reason


def test_a_gate_is_hopeless_where_some_metric_needs_far_more_blocks_than_are_allowed():
    loud, quiet = paired(around(0.0, 0.3, 3)), paired(around(0.0, blocks=3))
    assert hopeless([quiet, loud], 16)
    assert not hopeless([quiet], 16)
    # What is decided already needs no more blocks, however few are allowed.
    assert not hopeless([paired(around(0.5, 0.01, 3))], 3)


def test_the_bounds_of_a_ruling_are_of_the_change_for_the_worse():
    slower = rulings([paired(around(0.1))], 8)[0]
    assert slower.outcome == "fail"
    assert slower.change == pytest.approx(math.expm1(0.1), rel=0.01)
    assert slower.interval.low < slower.change < slower.interval.high


def test_of_a_throughput_less_is_worse():
    assert decide([paired(around(-0.1), "throughput")]) == ["fail"]
    assert decide([paired(around(0.1), "throughput")]) == ["pass"]
    slower = rulings([paired(around(-0.1), "throughput")], 8)[0]
    assert slower.change == pytest.approx(math.expm1(0.1), rel=0.01)


def test_several_metrics_need_more_evidence_each():
    """Three blocks have a p of 1 ÷ 216 at best: it fails a metric alone, and not as one of two."""
    alone = paired(around(0.1, blocks=3))
    assert alone.worse.p_above(D0) == 1 / 216
    assert decide([alone]) == ["fail"]
    assert decide([alone, paired(around(0.0, blocks=3), "p90")]) == ["undecided", "pass"]


def test_what_others_did_not_disturb_is_estimated():
    (ruling,) = rulings([paired(around(0.1))._replace(undisturbed=True)], 8)
    assert (ruling.outcome, ruling.how, ruling.undisturbed) == ("fail", "estimated", True)
    (ruling,) = rulings([paired(around(0.1))], 8)
    assert (ruling.how, ruling.undisturbed) == ("measured", False)


def test_the_plan_follows_from_the_noise():
    # ((1.959964 + 1.281552)·0.01 ÷ ln(1.03 ÷ 1.01))² = 2.73
    tolerance = Tolerance(metric="latency", accepted=0.01, refused=0.03)
    assert blocks_for(0.01, tolerance) == 3 + 2
    assert blocks_for(0.03, tolerance) == 25 + 2
    wider = Tolerance(metric="latency", accepted=0.01, refused=0.10)
    assert blocks_for(0.03, wider) == 2 + 2


def test_a_change_is_signed_as_it_is_read():
    assert (signed(0.012), signed(-0.5), signed(0.0)) == ("+1.2 %", "−50 %", "+0 %")


LOGS = st.lists(st.tuples(*[st.floats(-0.5, 0.5)] * 4), min_size=3, max_size=4)


@given(LOGS, st.floats(0, 0.5))
def test_slower_is_never_better(logs, more):
    """A constant slowdown of B turns no fail into a pass, and nothing into a pass."""
    before = decide([paired(logs)])[0]
    after = decide([paired([(a, b + more, c + more, d) for a, b, c, d in logs])])[0]
    assert after != "pass" or before == "pass"


@given(LOGS)
def test_who_is_undecided_needs_more_blocks(logs):
    one = paired(logs)
    if decide([one]) == ["undecided"]:
        assert blocks_to_decide(one.worse, one.tolerance) > len(logs)


@pytest.mark.slow
def test_errors_are_kept_where_they_are_promised():
    """On normal noise: a false alarm at the boundary in 0.5 % of first looks, far fewer below."""
    rng = np.random.default_rng(1)
    noise = 0.01 * rng.standard_normal((2_000, 8, 4))
    alarms = {}
    for mean in (0.0, D0):
        moved = noise + mean * np.array([0, 1, 1, 0])
        gates = [decide([paired(map(tuple, one))]) for one in moved]
        alarms[mean] = np.mean([gate == ["fail"] for gate in gates])
    assert alarms[0.0] < 0.002
    assert 0.001 < alarms[D0] < 0.011
