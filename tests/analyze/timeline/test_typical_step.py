"""One typical step from recorded and stamped ones: by hand."""

import numpy as np
import pytest

from torchgauge.analyze.timeline.attribution import FORWARD, NONE
from torchgauge.analyze.timeline.residual import LayerTimes
from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL, NodeDraft, NodeTable
from torchgauge.analyze.timeline.typical_step import PhaseTimes, typical
from torchgauge.records.timeline.tree import Pass

NODES = [
    NodeDraft("Net", "model", NONE, layer=0),
    NodeDraft("aten::mm", "operator", 0, FORWARD),
    NodeDraft(OUTSIDE_MODEL, "bucket", 0),
]


def tree(bare, stamped, *, outside=400, step="inference"):
    """Return the tree of a recording of 100 + 300 ns in the model, and so many outside."""
    host = np.array([[100], [300], [outside]], np.int64)
    table = NodeTable(NODES, host, np.ones_like(host), np.zeros(0, np.int64))
    passes = (Pass(name="stamps", steps=1, duration=bare * 1e-9, bare=bare * 1e-9),)
    phases = PhaseTimes([], []) if step == "inference" else None
    layers = LayerTimes([{0: stamped}], [{0: 1}])
    return typical(table, layers, step=step, passes=passes, phases=phases)


def times(found):
    return [node.row.host for node in found.root.walk()]


def test_an_operator_has_its_share_of_the_stamped_time():
    assert times(tree(bare=2_000, stamped=200)) == [50, 150, 400]


def test_outside_of_the_model_is_at_most_what_the_bare_step_leaves():
    found = tree(bare=210, stamped=200)
    assert times(found) == [50, 150, 10]
    assert found.residual == pytest.approx(0, abs=1e-15)


def test_parts_that_are_longer_than_the_bare_step_leave_nothing_and_are_the_residual():
    found = tree(bare=150, stamped=200)
    assert times(found) == [50, 150, 0]
    assert found.residual == pytest.approx(50e-9)


def test_steps_of_a_loop_keep_what_was_recorded_between_them():
    assert times(tree(bare=210, stamped=200, step="loop")) == [50, 150, 400]


def test_a_layer_is_never_shorter_than_nothing():
    assert times(tree(bare=1_000, stamped=-3)) == [0, 0, 400]
