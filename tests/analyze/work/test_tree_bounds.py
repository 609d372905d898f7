"""What bounds a layer: by hand."""

import pytest

from torchgauge.analyze.work.tree_costs import layer_times, with_bounds, with_costs
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

# 1 GFLOP/s, 1 GB/s, a microsecond a call: work and bytes are nanoseconds.
ROOFS = Roofs(
    device="here",
    source="measured",
    method="",
    peaks={"float32": 1e9},
    bandwidth=(BandwidthPoint(working_set=1 << 40, bytes_per_second=1e9),),
    dispatch=1e-6,
)


def cost(*work):
    """One layer for each (flops, bytes, calls), below the model."""
    names = [f"layer{number}" for number in range(len(work))]
    nodes = [
        CostNode(name="Net", path="", kind="Net", parent=-1, calls=1, parameters=0),
        *(CostNode(name=n, path=n, kind="L", parent=0, calls=1, parameters=0) for n in names),
    ]
    rows = [
        CostRow(
            node=number + 1, phase="forward", operator="aten::mm", dtype="float32",
            calls=calls, matmul_flops=flops, causal_matmul_flops=flops, bytes=size,
        )
        for number, (flops, size, calls) in enumerate(work)
    ]  # fmt: skip
    return Cost(nodes=tuple(nodes), rows=tuple(rows), backward=False, counted_on="cpu")


def tree(*host):
    """One layer with one operator for each time in ns."""
    rows = [TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0)]
    for number, time in enumerate(host):
        name = f"layer{number}"
        place = len(rows)
        rows.append(TreeRow(name=name, kind="layer", parent=0, calls=1, path=name, host=0))
        rows.append(
            TreeRow(
                name="aten::mm", kind="operator", parent=place, calls=1, phase="forward", host=time
            )
        )
    return Tree(rows=tuple(rows))


def test_each_layer_waits_for_what_takes_most_of_its_time():
    work = cost((800_000, 10, 1), (10, 800_000, 1), (10, 10, 400))
    found = with_bounds(tree(1_000_000, 1_000_000, 1_000_000), work, ROOFS)
    assert [found.find(f"layer{n}").bound for n in range(3)] == ["compute", "memory", "overhead"]


def test_the_lower_bound_of_the_model_is_that_of_its_layers():
    work = cost((800_000, 10, 1), (10, 600_000, 1))
    root = with_bounds(tree(1_000_000, 1_000_000), work, ROOFS).root
    assert root.total("lower_bound") == 1_400_000
    assert root.efficiency == pytest.approx(0.7)
    assert root.layers[0].efficiency == pytest.approx(0.8)


def test_a_layer_with_an_unknown_operator_has_no_bound():
    known = cost((800_000, 10, 1))
    import msgspec

    rows = tuple(msgspec.structs.replace(row, has_formula=False) for row in known.rows)
    unknown = msgspec.structs.replace(known, rows=rows)
    assert with_bounds(tree(1_000_000), unknown, ROOFS).find("layer0").bound is None
    assert with_bounds(tree(1_000_000), known, ROOFS).find("layer0").bound == "compute"


def test_unknown_work_is_at_least():
    import msgspec

    known = cost((5, 10, 2))
    unknown = msgspec.structs.replace(
        known,
        rows=(*known.rows, msgspec.structs.replace(known.rows[0], has_formula=False, calls=3)),
    )
    layer = with_costs(tree(1_000), unknown).find("layer0")
    assert layer.at_least
    assert layer.total("unknown") == 3
    assert not with_costs(tree(1_000), known).find("layer0").at_least


def test_layers_have_the_times_of_the_tree():
    work = cost((1, 1, 1), (1, 1, 1), (1, 1, 1))
    times = layer_times(tree(2_000, 3_000), work)
    assert times == pytest.approx({0: 5e-6, 1: 2e-6, 2: 3e-6})  # the third was not recorded
