"""What a pass over the steps cost, by hand."""

import pytest

from torchgauge.errors import RecordError
from torchgauge.records.record import Interval
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Pass, Tree


@pytest.mark.parametrize(
    ("duration", "bare", "interval", "overhead"),
    [
        (3.0, 2.0, None, 1.5),
        (2.0, 2.0, None, None),
        (1.28, 2.0, None, None),
        (3.0, None, None, None),
        (3.0, 2.0, (1.5, 2.5), 1.5),
        (2.4, 2.0, (1.5, 2.5), None),
        (1.28, 2.0, (1.5, 2.5), None),
    ],
)
def test_overhead_is_said_where_it_can_be_told_from_none(duration, bare, interval, overhead):
    known = None if interval is None else Interval(low=interval[0], high=interval[1])
    found = Pass(name="stamps", steps=3, duration=duration, bare=bare, bare_interval=known)
    assert found.overhead == overhead


@pytest.mark.parametrize("parents", [[], [0], [-1, 1], [-1, -1], [-1, 0, 2], [1, -1]])
def test_rows_that_are_no_tree_are_refused(parents):
    rows = tuple(TreeRow(name="n", kind="layer", parent=parent, calls=1) for parent in parents)
    with pytest.raises(RecordError, match="not form a tree"):
        Tree(rows=rows)


def test_a_parent_comes_before_its_children():
    rows = tuple(
        TreeRow(name="n", kind="layer", parent=parent, calls=1) for parent in (-1, 0, 1, 0)
    )
    assert len(Tree(rows=rows).nodes) == 4
