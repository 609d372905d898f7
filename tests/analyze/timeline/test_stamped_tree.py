"""Layers alone, from stamps: hand-computed."""

import pytest

from torchgauge.analyze.timeline.call_tree import Call, CallTree, NamedModule
from torchgauge.analyze.timeline.residual import layer_times, stamped_tree
from torchgauge.records.timeline.tree import Pass

NET, CONV = 0, 1


def stamped(*steps, bare):
    tree = CallTree([NamedModule(("",), "Net"), NamedModule(("conv",), "Conv2d")], "Net")
    times = layer_times(steps, tree)
    passes = (Pass(name="stamps", steps=len(steps), duration=bare, bare=bare),)
    return stamped_tree(times, tree, step="inference", passes=passes)


def step(conv, whole):
    """Two calls of conv, of so many ns each, within the model's."""
    return [Call(CONV, 1, 10, 10 + conv), Call(CONV, 1, 50, 50 + conv), Call(NET, 1, 0, whole)]


def test_own_times_are_medians_and_the_rest_is_outside():
    tree = stamped(step(10, 100), step(20, 100), step(30, 100), bare=160e-9)
    assert tree.find("conv").row.host == 40
    assert tree.find("conv").calls == 2
    assert tree.root.row.host == 60
    assert [(node.name, node.row.host) for node in tree.root.children[1:]] == [
        ("outside the model", 60)
    ]
    assert tree.residual == pytest.approx(0)


def test_layers_that_take_longer_than_the_bare_step_leave_no_negative_rest():
    tree = stamped(step(10, 100), bare=90e-9)
    assert tree.root.children[1].row.host == 0
    assert tree.residual == pytest.approx(10e-9)
