"""Folding of layers that are alike, by hand."""

from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.report.tables.work_table import folded


def node(name, parent, kind="Block", parameters=0):
    return CostNode(name=name, path=name, kind=kind, parent=parent, calls=1, parameters=parameters)


def row(at, flops):
    return CostRow(node=at, operator="mm", phase="forward", dtype="float32", calls=1,
                   matmul_flops=flops, bytes=3)  # fmt: skip


def shown(cost):
    return [
        (level, one.node.name, one.node.parameters, one.work.flops, one.work.bytes)
        for level, one in folded(cost.tree).walk()
    ]


def blocks(*flops, names=None, kinds=None, parameters=100):
    """A root of blocks with one layer each, which does the work."""
    nodes, rows = [node("net", -1, "Net", parameters)], []
    for index, work in enumerate(flops):
        name = names[index] if names else f"h.{index}"
        nodes.append(node(name, 0, kinds[index] if kinds else "Block", 10))
        nodes.append(node("mlp", len(nodes) - 1, "MLP", 10))
        rows.append(row(len(nodes) - 1, work))
    return Cost(nodes=tuple(nodes), rows=tuple(rows), backward=False, counted_on="meta")


def test_blocks_alike_are_one_with_the_sums_of_all_and_so_are_their_layers():
    assert shown(blocks(7, 7, 7)) == [
        (0, "net", 100, 21, 9),
        (1, "h.0–2 ×3", 30, 21, 9),
        (2, "mlp", 30, 21, 9),
    ]


def test_another_one_between_parts_them():
    names = [name for _, name, *_ in shown(blocks(7, 7, 8, 7, 7)) if name != "mlp"]
    assert names == ["net", "h.0–1 ×2", "h.2", "h.3–4 ×2"]


def test_another_class_or_another_name_is_not_alike():
    kinds = [name for _, name, *_ in shown(blocks(7, 7, kinds=["Block", "Other"]))]
    assert kinds == ["net", "h.0", "mlp", "h.1", "mlp"]
    names = [name for _, name, *_ in shown(blocks(7, 7, names=["query", "key"]))]
    assert names == ["net", "query", "mlp", "key", "mlp"]
    lists = [name for _, name, *_ in shown(blocks(7, 7, names=["a.0", "b.0"]))]
    assert lists == ["net", "a.0", "mlp", "b.0", "mlp"]


def test_shared_parameters_are_not_counted_again():
    assert shown(blocks(7, 7, 7, parameters=10))[1][2] == 10


def test_blocks_within_blocks():
    nodes, rows = [node("net", -1, "Net")], []
    for outer in range(2):
        nodes.append(node(f"stage{outer}", 0, "Stage"))
        parent = len(nodes) - 1
        for inner in range(3):
            nodes.append(node(f"{inner}", parent))
            rows.append(row(len(nodes) - 1, 5))
    cost = Cost(nodes=tuple(nodes), rows=tuple(rows), backward=False, counted_on="meta")
    assert [(level, name, flops) for level, name, _, flops, _ in shown(cost)] == [
        (0, "net", 30), (1, "stage0–1 ×2", 30), (2, "0–2 ×3", 30),
    ]  # fmt: skip
