"""Figures of one tree on another: by place, and nothing dropped."""

from torchgauge.analyze.memory.tree_memory import with_memory
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Pass, Tree


def row(name, kind, parent, **figures):
    path = name if kind == "layer" else ""
    return TreeRow(name=name, kind=kind, parent=parent, calls=1, path=path, **figures)


def sizes(allocated, **others):
    return {"allocated": allocated, "allocations": 2 * allocated, **others}


BARE = Interval(low=1.4, high=1.6)
TREE = Tree(
    rows=(
        row("Net", "model", -1, host=5),
        row("a", "layer", 0),
        row("aten::add", "operator", 1, phase="forward", shapes="[[2]]"),
        row("aten::add", "operator", 1, phase="backward", shapes="[[2]]"),
        row("aten::mul", "operator", 1, phase="forward"),
    ),
    passes=(Pass(name="stamps", steps=3, duration=2.0, bare=1.5, bare_interval=BARE),),
)
MEMORY = Tree(
    rows=(
        row("Net", "model", -1, **sizes(1, peak=50, retained=0, parameters=7)),
        row("b", "layer", 0, **sizes(10, peak=99, parameters=3)),  # the tree has no such layer
        row("a", "layer", 0, **sizes(100, peak=40, retained=4)),
        row("aten::add", "operator", 1, **sizes(1000)),  # in b
        row("aten::add", "operator", 2, phase="backward", shapes="[[2]]", **sizes(10_000)),
        row("aten::add", "operator", 2, phase="forward", shapes="[[3]]", **sizes(100_000)),
        row("aten::add", "operator", 2, phase="forward", shapes="[[2]]", **sizes(1_000_000)),
    ),
    passes=(Pass(name="memory", steps=1, duration=3.0),),
    allocator="CUDA",
    warnings=(MeasurementWarning(id="seen", message="."),),
)


def test_rows_are_found_by_their_place_and_others_are_their_parent_s_own():
    joined = with_memory(TREE, MEMORY)
    assert [one.allocated for one in joined.rows] == [1011, 100_100, 1_000_000, 10_000, None]
    assert [one.allocations for one in joined.rows] == [2022, 200_200, 2_000_000, 20_000, None]
    assert [one.peak for one in joined.rows] == [50, 40, None, None, None]
    assert [one.retained for one in joined.rows] == [0, 4, None, None, None]
    assert [one.parameters for one in joined.rows] == [10, None, None, None, None]
    assert joined.root.memory == sum(one.allocated for one in MEMORY.rows)
    assert joined.root.row.host == 5


def test_the_pass_is_beside_the_bare_step_and_its_warnings_are_kept():
    joined = with_memory(TREE, MEMORY)
    assert [(one.name, one.overhead) for one in joined.passes] == [
        ("stamps", 2 / 1.5),
        ("memory", 2),
    ]
    assert joined.passes[1].bare_interval == BARE
    assert [one.id for one in joined.warnings] == ["seen"]
    assert joined.allocator == "CUDA"


def test_a_tree_without_operators_has_them_in_its_layers():
    bare = Tree(rows=TREE.rows[:2])
    joined = with_memory(bare, MEMORY)
    assert [one.allocated for one in joined.rows] == [1011, 1_110_100]
    assert joined.passes[0].bare is None
