"""Which layers a failing gate names, and in which order."""

from __future__ import annotations

import re

import pytest
from tests.support.verdicts import side

from torchgauge.analyze.gate.regressed_layers import regressed_layers
from torchgauge.records.comparison import Comparison, Place
from torchgauge.records.record import Interval
from torchgauge.records.verdict import Ruling, Tolerance

RULING = Ruling(
    metric="latency",
    outcome="fail",
    how="measured",
    unit="s",
    current=2.0,
    tolerance=Tolerance(metric="latency", accepted=0.01, refused=0.03),
    method="8 ABBA blocks",
)


def layer(name, contribution, *, significant, other_work=False):
    return Place(
        kind="layer", name=name, baseline=1e-3, current=1e-3 + contribution,
        contribution=contribution, change=contribution / 1e-3, significant=significant,
        interval=Interval(low=0.1, high=9.0) if significant is not None else None,
        baseline_calls=1, current_calls=1, baseline_flops=10,
        current_flops=20 if other_work else 10,
    )  # fmt: skip


def named(*layers):
    """Return each name with its remark."""
    comparison = Comparison(baseline=side("main"), current=side("work tree"), layers=layers)
    texts = regressed_layers(comparison, (RULING,))
    return [text.split(" ")[0] + "".join(re.findall(r" \([^)]*\)$", text)) for text in texts]


def test_proven_layers_come_by_contribution():
    layers = [layer(name, ms * 1e-3, significant=True) for name, ms in (("a", 3), ("b", 5))]
    assert named(*layers) == ["b", "a"]
    assert named(*layers, layer("tiny", 1e-4, significant=True)) == ["b", "a"]


def test_a_layer_with_other_work_comes_first_even_if_only_its_surroundings_are_proven():
    waiting = [layer(name, 20e-3, significant=True) for name in ("encoder", "head")]
    pool = layer("pool", 6e-3, significant=False, other_work=True)
    assert named(*waiting, pool) == [
        "pool (not proven)",
        "encoder (the same work as before)",
        "head (the same work as before)",
    ]


def test_layers_with_the_same_work_alone_are_named_without_a_remark():
    assert named(layer("sleepy", 1e-3, significant=True)) == ["sleepy"]


@pytest.mark.parametrize("significant", [False, None])
def test_nothing_proven_names_the_three_largest(significant):
    layers = [layer(name, 1e-3 * n, significant=significant) for n, name in enumerate("abcd", 2)]
    assert named(*layers) == ["d (not proven)", "c (not proven)", "b (not proven)"]


def test_a_proven_layer_with_other_work_leaves_out_what_is_not_proven():
    proven = layer("pool", 6e-3, significant=True, other_work=True)
    unproven = layer("other", 9e-3, significant=False, other_work=True)
    assert named(proven, unproven, layer("head", 1e-3, significant=True)) == [
        "pool",
        "head (the same work as before)",
    ]
