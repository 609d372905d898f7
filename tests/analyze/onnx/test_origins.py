"""Which nodes of a file became one node: fused, in another layout, folded, added."""

from __future__ import annotations

import pytest

from torchgauge.analyze.onnx.node_tree import TimedNode, as_run, fused_name, main_origin, node_rows
from torchgauge.analyze.onnx.node_work import with_work
from torchgauge.analyze.onnx.origins import NodeCounter, counted_nodes, origins
from torchgauge.records.onnx.graph import Graph, GraphNode, Initializer, TensorType
from torchgauge.records.timeline.tree import Tree


def node(operator: str, inputs: str, output: str, **fields: object) -> GraphNode:
    name = str(fields.pop("name", f"node_{output}"))
    return GraphNode(
        name=name, operator=operator, inputs=tuple(inputs.split()), outputs=(output,), **fields
    )  # type: ignore[arg-type]


def graph(*nodes: GraphNode, stored: str = "") -> Graph:
    return Graph(
        name="g", opsets={"": 18}, inputs=("x",), outputs=(nodes[-1].outputs[0],), values={},
        initializers=tuple(
            Initializer(name=name, dtype="float32", shape=(1,), bytes=4) for name in stored.split()
        ),
        nodes=nodes,
    )  # fmt: skip


def work(flops: int, layer: str) -> dict[str, object]:
    return {"matmul_flops": flops, "vector_flops": 0, "bytes": 8, "layer": layer, "rule": "weights"}


BLOCK = graph(
    node("Conv", "x w", "c", **work(100, "conv")),
    node("BatchNormalization", "c s b m v", "n", **work(0, "bn")),
    node("Relu", "n", "r", layer="relu", rule="metadata", matmul_flops=0, vector_flops=10, bytes=8),
    node("Conv", "r w2", "c2", **work(300, "conv2")),
    node("Add", "c2 r", "a", **work(0, "")),
    node("Relu", "a", "y", **work(0, "")),
    stored="w s b m v w2",
)
LAYOUT = "com.microsoft.nchwc"


def test_a_fused_node_has_what_is_between_its_inputs_and_output():
    optimised = graph(
        node("FusedConv", "x w_bn", "r"), node("Conv", "r w2", "c2"), node("Add", "c2 r", "a"),
        node("Relu", "a", "y"),
    )  # fmt: skip
    assert origins(optimised, BLOCK) == [(0, 1, 2), (3,), (4,), (5,)]


def test_nodes_in_another_layout_are_named_after_the_value_that_they_make():
    optimised = graph(
        node("Conv", "x reorder", "t0", name="r_nchwc", domain=LAYOUT),
        node("Conv", "t0 reorder1  t0", "t1", name="c2_nchwc", domain=LAYOUT),
        node("ReorderOutput", "t1", "y", name="ReorderOutput", domain=LAYOUT),
    )
    # The sum is not among its inputs by position here, so that it stays with nobody but the last.
    assert origins(optimised, BLOCK)[0] == (0, 1, 2)
    assert origins(optimised, BLOCK)[2] == ()


def test_a_convolution_takes_in_a_sum_and_an_activation_that_its_name_does_not_tell():
    summing = GraphNode(
        name="c2_nchwc", operator="Conv", domain=LAYOUT, inputs=("t0", "reorder1", "", "t0"),
        outputs=("t1",), attributes={"activation": "Relu"},
    )  # fmt: skip
    first = node("Conv", "x reorder", "t0", name="r_nchwc", domain=LAYOUT)
    last = node("ReorderOutput", "t1", "y", name="ReorderOutput", domain=LAYOUT)
    assert origins(graph(first, summing, last), BLOCK) == [(0, 1, 2), (3, 4, 5), ()]


def test_folded_constants_belong_to_no_node():
    original = graph(
        node("Shape", "w", "s"), node("Reshape", "x s", "y", **work(0, "")), stored="w"
    )
    assert origins(graph(node("Reshape", "x folded", "y")), original) == [(1,)]


def test_an_untouched_graph_is_its_own_origin():
    assert origins(BLOCK, BLOCK) == [(number,) for number in range(6)]


def test_the_layer_is_that_of_the_origin_with_most_work_and_the_name_says_the_fusion():
    assert main_origin((0, 1, 2), BLOCK).layer == "conv"
    name = fused_name("onnx::FusedConv", (0, 1, 2), BLOCK)
    assert name == "onnx::FusedConv = Conv + BatchNormalization + Relu"
    assert fused_name("onnx::Conv", (0,), BLOCK) == "onnx::Conv"
    assert fused_name("onnx::X", range(6), BLOCK).endswith("Conv + … (6 nodes)")


def test_the_tree_has_all_time_and_all_work():
    nodes = [
        TimedNode("onnx::FusedConv", 5e-6, origins=(0, 1, 2), layer="conv", rule="weights"),
        TimedNode("onnx::Conv", 3e-6, origins=(3,), layer="conv2", rule="weights"),
        TimedNode("onnx::ReorderOutput", 1e-6),
    ]
    tree = Tree(rows=node_rows(BLOCK, nodes, outside=2e-6))
    assert tree.root.total("host") == 11_000
    assert tree.root.flops == 410
    assert tree.find("conv").total("host") == 5000
    assert tree.find("conv").flops == 110
    assert tree.find("(no layer)").total("host") == 1000
    assert [row.name for row in tree.rows if row.kind == "bucket"] == ["outside the nodes"]


def typed(operator: str, inputs: str, output: str, **fields: object) -> GraphNode:
    """Return a node on values of 1,000 bytes."""
    kinds = (TensorType(dtype="float32", shape=(250,)),) * len(inputs.split())
    return node(operator, inputs, output, input_types=kinds, output_types=kinds[:1], **fields)


CHAIN = with_work(
    graph(
        typed("Relu", "x", "a"), typed("Reshape", "a", "b"), typed("Add", "b x", "c"),
        typed("Tanh", "c", "d"), typed("Mul", "c d", "y"),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("origins", "moved"),
    [
        ([(0,), (1,), (2,), (3,), (4,)], 2000 + 3000 + 2000 + 3000),
        ([(0, 1, 2), (3,), (4,)], 2000 + 2000 + 3000),  # x is read once, c written
        ([(0, 1), (2,), (3, 4)], 2000 + 3000 + 2000),  # a is b, which leaves
        ([(0, 1, 2, 3, 4)], 2000),
        ([(4,), (0, 1, 2)], 2000 + 3000),  # the Tanh was folded, as it were
    ],
)
def test_values_inside_of_a_fused_node_move_nothing(origins, moved):
    nodes = [TimedNode("onnx::Fused", 1e-6, origins=numbers) for numbers in origins]
    assert Tree(rows=node_rows(CHAIN, nodes, outside=0.0)).root.bytes == moved
    assert sum(item.bytes for item in as_run(CHAIN, nodes).nodes) == moved
    assert sum(item.flops for item in as_run(CHAIN, nodes).nodes) == (750 if (4,) in origins[:1]
                                                                      else 1000)  # fmt: skip


def test_the_work_of_what_the_runtime_added_is_unknown():
    nodes = [TimedNode("openvino::Reorder", 1e-6, layer="a"),
             TimedNode("com.microsoft.nchwc::ReorderInput", 1e-6, layer="b")]  # fmt: skip
    rows = [row for row in node_rows(CHAIN, nodes, outside=0.0) if row.kind == "operator"]
    assert [(row.flops, row.bytes, row.unknown) for row in rows] == [(None, None, 1), (0, None, 0)]


def test_a_node_that_two_of_openvino_s_name_is_counted_once():
    counters = [NodeCounter("r", "Reorder", "k", 1e-6, ("node_a",)),
                NodeCounter("m", "Multiply", "k", 3e-6, ("node_a", "node_y")),
                NodeCounter("n", "Not", "k", None, ("node_d",))]  # fmt: skip
    ran = counted_nodes(counters, CHAIN, 1.0)
    assert [item.origins for item in ran] == [(), (0, 4)]


def test_layers_are_nested_as_their_paths():
    nodes = [TimedNode("onnx::Relu", 1e-6, layer=path) for path in ("a.b.c", "a.d", "", "a.b")]
    tree = Tree(rows=node_rows(BLOCK, nodes, outside=0.0))
    paths = [row.path for row in tree.rows if row.kind in ("model", "layer")]
    assert paths == ["", "a", "a.b", "a.b.c", "a.d"]
    assert tree.find("a").total("host") == 3000
