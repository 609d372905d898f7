"""Layers that stand out from those at the same place of other blocks, on trees made by hand."""

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.analyze.findings import layer_rules
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

SHAPE = "[[4, 8], [8]]"


def layer(path, kind, microseconds, shape=SHAPE, flops=100, **figures):
    """A layer below the model, and its operator with all its time."""
    name = path.rpartition(".")[2]
    row = TreeRow(
        name=name, kind="layer", parent=0, calls=1, path=path, type=kind, host=0, **figures
    )
    return row, TreeRow(
        name="aten::mul", kind="operator", parent=-1, calls=1, phase="forward", shapes=shape,
        host=microseconds * 1000, flops=flops,
    )  # fmt: skip


def slow_sibling(*layers):
    """The finding about these layers below a model; None where there is none."""
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0)]
    for row, operator in layers:
        rows += [row, TreeRow(**{**as_fields(operator), "parent": len(rows)})]
    tree = Tree(rows=tuple(rows))
    return next(layer_rules.slow_sibling.find(Evidence(tree, tree.root.time)), None)


def as_fields(row):
    return {name: getattr(row, name) for name in row.__struct_fields__}


def norms(slow, count=12):
    """Norms of blocks of 10 µs each, of which number 3 is another."""
    usual = [layer(f"blocks.{number}.n1", "LayerNorm", 10) for number in range(count)]
    return [*usual[:3], slow, *usual[4:]]


def test_a_layer_that_takes_far_more_than_its_siblings_is_named_with_its_source():
    slow = layer("blocks.3.n1", "SlowNorm", 1050, source="net.py:7")
    found = slow_sibling(*norms(slow))
    assert found.title == "blocks.3.n1 (SlowNorm) takes 105 times what its 11 siblings take"
    assert found.remedy == "Compare its forward, net.py:7, with that of blocks.0.n1 (LayerNorm)."
    assert found.time == pytest.approx(1050e-6)
    assert found.worth == pytest.approx(1040e-6)
    assert found.path == "blocks.3.n1"


@pytest.mark.parametrize(
    "slow",
    [
        layer("blocks.3.n1", "LayerNorm", 29),  # too little
        layer("blocks.3.n1", "LayerNorm", 1050, flops=10_500),  # as much more work
        layer("blocks.3.n1", "LayerNorm", 1050, "[[400, 8], [8]]"),  # another input
        layer("blocks.3.n1", "LayerNorm", 1050, ""),  # of which nothing is known
        layer("head.n1", "LayerNorm", 1050),  # at another place
        layer("blocks.3.n1", "LayerNorm", 1050, shortest=10_000),  # disturbed in most steps
    ],
)
def test_layers_that_have_a_reason_to_take_longer(slow):
    assert slow_sibling(*norms(slow)) is None


def test_three_siblings_are_needed():
    slow = layer("blocks.3.n1", "SlowNorm", 1050)
    assert slow_sibling(*norms(slow, count=3)) is not None
    assert slow_sibling(*norms(slow, count=3)[1:]) is None


def test_what_a_list_holds_is_compared_within_one_class():
    relus = [layer(f"net.{number}", "ReLU", 10) for number in range(0, 12, 2)]
    assert slow_sibling(*relus, layer("net.1", "Linear", 1050)) is None
    assert slow_sibling(*relus, layer("net.1", "ReLU", 1050)).path == "net.1"


class Slow(nn.Module):
    def forward(self, x):
        for _ in range(300):
            x = x.clone()  # no FLOPs that would explain its time
        return x


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.linear = norm, nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.norm(x))


@pytest.mark.thorough
def test_a_slow_layer_of_a_model_is_its_first_finding():
    blocks = [Block(Slow() if number == 2 else nn.LayerNorm(8)) for number in range(6)]
    profile = tg.profile(
        nn.Sequential(*blocks), torch.randn(2, 8), effort="quick", iterations=5, roofs=False,
        progress=False,
    )  # fmt: skip
    found = profile.findings[0]
    line = Slow.forward.__code__.co_firstlineno
    assert (found.id, found.path) == ("slow-sibling", "2.norm")
    assert f"test_sibling_findings.py:{line}" in found.remedy
    assert profile.tree.find("0.norm").row.source == ""  # torch's own
