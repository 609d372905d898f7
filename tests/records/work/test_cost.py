"""Sums over a cost's rows, by hand."""

from torchgauge.records.work.cost import Cost, CostNode, CostRow


def node(name, parent, calls=1):
    return CostNode(name=name, path=name, kind=name.title(), parent=parent, calls=calls)


def row(at, operator, phase="forward", **sums):
    return CostRow(node=at, operator=operator, phase=phase, dtype="float32", **sums)


COST = Cost(
    nodes=(node("root", -1), node("a", 0), node("b", 1), node("c", 0)),
    rows=(
        row(0, "add", calls=1, vector_flops=5, bytes=12),
        row(1, "mm", calls=2, matmul_flops=100, causal_matmul_flops=60, bytes=50),
        row(2, "mm", "recompute", calls=1, matmul_flops=40, causal_matmul_flops=40, bytes=20),
        row(2, "mm", "backward", calls=2, matmul_flops=80, causal_matmul_flops=80, bytes=40),
        row(3, "my::op", calls=4, has_formula=False, bytes=8),
        row(3, "int", calls=1, integer_ops=7),
    ),
    backward=True,
    counted_on="cpu",
)


def test_totals():
    assert (COST.matmul_flops, COST.vector_flops, COST.flops, COST.macs) == (180, 5, 185, 90)
    assert COST.causal_matmul_flops == 140
    assert COST.executed_flops == 225
    assert COST.integer_ops == 7
    assert COST.bytes == 130
    assert COST.intensity == 225 / 130
    assert COST.unknown == {"my::op": 4}
    assert COST.at_least
    assert COST.coverage == 7 / 11


def test_totals_for_readers_of_the_file_are_the_same_by_name():
    totals = COST.totals
    assert totals.pop("unknown_calls") == 4
    assert totals == {name: getattr(COST, name) for name in totals}
    assert totals["flops"] == totals["matmul_flops"] + totals["vector_flops"]


def test_so_many_times_the_work_is_the_sum_of_so_many():
    work = COST.total()
    assert work.times(3) == work.plus(work).plus(work)


def test_the_tree_adds_up():
    tree = COST.tree
    assert [child.node.name for child in tree.children] == ["a", "c"]
    assert tree.work.flops == 225
    a, c = tree.children
    assert a.own.flops == 100
    assert a.work.flops == 220
    assert c.work.unknown_calls == 4
    assert c.work.at_least
    assert not a.work.at_least
    assert [(level, one.node.name) for level, one in tree.walk()] == [
        (0, "root"), (1, "a"), (2, "b"), (1, "c"),
    ]  # fmt: skip
    assert [one.node.name for _, one in tree.walk(1)] == ["root", "a", "c"]


def test_groups():
    assert {name: work.flops for name, work in COST.by_operator().items()} == {
        "mm": 220, "add": 5, "my::op": 0, "int": 0,
    }  # fmt: skip
    assert {name: work.flops for name, work in COST.by_type().items()} == {
        "B": 120, "A": 100, "Root": 5, "C": 0,
    }  # fmt: skip


def test_nothing_has_no_intensity_and_no_coverage():
    empty = Cost(nodes=(node("root", -1),), rows=(), backward=False, counted_on="meta")
    assert empty.intensity is None
    assert empty.coverage is None
    assert empty.tree.work.flops == 0
