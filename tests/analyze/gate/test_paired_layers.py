"""Layers by block: what is tested, what is named."""

import math
import re

import pytest

from torchgauge.analyze.gate.paired_layers import with_layers
from torchgauge.analyze.gate.regressed_layers import regressed_layers
from torchgauge.records.comparison import Comparison, Place, Side
from torchgauge.records.target import TargetDescription
from torchgauge.records.verdict import Ruling

NOISE = [0.001, -0.001, 0.002, -0.002, 0.0015, -0.0015]


SLOWER = (
    Ruling(metric="latency", outcome="fail", how="measured", unit="s", current=None, method="t"),
)


def side(label):
    target = TargetDescription(
        spec="m.py:m", kind="python", name="Net", device="cpu", precision="fp32",
        precision_method="native",
    )  # fmt: skip
    return Side(label=label, target=target, created="", machine="", processes=1)


def comparison(*names):
    places = tuple(
        Place(kind="layer", name=name, type="Linear", baseline_calls=1, current_calls=1)
        for name in names
    )
    return Comparison(baseline=side("a"), current=side("b"), layers=places)


def timed(changes, seconds=1e-3):
    """Return six blocks in which each layer takes `seconds` on A and so much more on B."""
    layers, logs = [], []
    for noise in NOISE:
        a = dict.fromkeys(changes, seconds)
        b = {name: seconds * math.exp(d + noise) for name, d in changes.items()}
        layers.append((a, b, b, a))
        logs.append({name: (-noise, d + noise, d, noise) for name, d in changes.items()})
    return logs, layers


def test_the_layer_that_changed_is_the_one_that_is_significant():
    changes = {"conv": 0.1, "linear": 0.0, "": 0.0}
    found = with_layers(comparison(*changes), *timed(changes), step_change=1.5e-4)
    by_name = {place.name: place for place in found.layers}
    conv = by_name["conv"]
    assert found.layers[0] is conv
    assert [place.significant for place in found.layers].count(True) == 1
    assert conv.significant
    assert conv.contribution == pytest.approx(1e-3 * math.expm1(0.1), rel=1e-3)
    assert conv.change == pytest.approx(math.expm1(0.1), rel=0.01)
    assert conv.interval.low < conv.change < conv.interval.high
    assert found.remainder == pytest.approx(
        1.5e-4 - math.fsum(place.contribution for place in found.layers)
    )
    assert "6 ABBA blocks" in found.places_tested


def test_the_guilty_layer_is_named_with_its_interval():
    changes = {"conv": 0.1, "linear": 0.0}
    found = with_layers(comparison(*changes), *timed(changes), step_change=1e-4)
    (named,) = regressed_layers(found, SLOWER)
    assert re.match(r"conv \(Linear\) \+10.5 % \[\+10.[34] %, \+10.[67] %\], \+105 µs", named)


def test_where_nothing_is_proven_the_largest_are_named_as_such():
    changes = {"conv": 0.0005, "linear": 0.0}
    found = with_layers(comparison(*changes), *timed(changes), step_change=1e-6)
    assert not any(place.significant for place in found.layers)
    assert regressed_layers(found, SLOWER)[0].endswith("(not proven)")


def test_a_layer_of_one_side_is_shown_and_not_tested():
    logs, layers = timed({"conv": 0.0})
    layers = [(a, {**b, "new": 1e-3}, {**b, "new": 1e-3}, a) for a, b, _, _ in layers]
    found = with_layers(comparison("conv", "new"), logs, layers, step_change=1e-3)
    new = found.layers[0]
    assert (new.name, new.baseline, new.significant) == ("new", None, None)
    assert new.contribution == pytest.approx(1e-3)


def test_two_blocks_test_nothing():
    logs, layers = timed({"conv": 0.5})
    before = comparison("conv")
    assert with_layers(before, logs[:2], layers[:2], step_change=1.0) is before
