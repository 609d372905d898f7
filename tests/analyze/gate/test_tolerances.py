"""Tolerances as users write them."""

import pytest

from torchgauge.analyze.gate.tolerances import default_tolerance, parse_tolerance
from torchgauge.errors import InputError
from torchgauge.records.metric import METRICS


@pytest.mark.parametrize(
    ("text", "metric", "accepted", "refused"),
    [
        ("latency:1%:3%", "latency", 0.01, 0.03),
        ("p99: 2.5 % : 10 %", "p99", 0.025, 0.10),
        ("latency:0%:3%", "latency", 0.0, 0.03),
        ("latency:6%", "latency", 0.02, 0.06),  # δ1; δ0 is a third
        ("flops:0%", "flops", 0.0, 0.0),  # an exact metric has one bound
        ("params:2%", "params", 0.02, 0.02),
        ("memory:5%", "memory", 0.05, 0.05),
        ("memory:1%:3%", "memory", 0.01, 0.03),
    ],
)
def test_what_they_mean(text, metric, accepted, refused):
    found = parse_tolerance(text)
    assert found.metric == metric
    assert (found.accepted, found.refused) == pytest.approx((accepted, refused))


@pytest.mark.parametrize(
    "text",
    ["latency", "latency:", "latency:3", "latency:0.03", "latency:3%:1%", "latency:1%:1%",
     "latency:0%", "latency:-1%:3%", "latency:1%:2%:3%", "latency:1%:", "latency:nan%",
     f"flops:{'9' * 400}%"],
)  # fmt: skip
def test_what_is_none(text):
    with pytest.raises(InputError) as caught:
        parse_tolerance(text)
    assert caught.value.id == "threshold-invalid"
    assert "latency:1%:3%" in caught.value.remedy


def test_an_unknown_metric_is_named_with_the_near_one():
    with pytest.raises(InputError, match="latecny") as caught:
        parse_tolerance("latecny:1%:3%")
    assert caught.value.id == "metric-unknown"
    assert "latency" in caught.value.remedy


@pytest.mark.parametrize("name", METRICS)
def test_defaults_are_by_kind(name):
    found = default_tolerance(name)
    loose = METRICS[name].kind in {"timing", "memory"}
    expected = (0.01, 0.03) if loose else (0.0, 0.0)
    if name in ("ttft", "tpot", "tokens", "energy", "energy_per_token"):
        expected = (0.05, 0.25)
    assert (found.accepted, found.refused) == expected
    assert default_tolerance(METRICS[name]) == found
