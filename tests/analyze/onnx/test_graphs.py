"""Layers, work and sizes of ONNX graphs, against truths by hand."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.support import onnx_files
from tests.support.onnx_files import model, node, weight

from torchgauge.analyze.onnx.graph_size import floating_precision, graph_size, made_up
from torchgauge.analyze.onnx.layers import common, scope_path, with_layers
from torchgauge.analyze.onnx.node_work import NO_LAYER, graph_cost, graph_facts, with_work
from torchgauge.readers.onnx.graph_reader import read
from torchgauge.readers.onnx.subgraphs import RequestedShapes
from torchgauge.records.onnx.graph import Graph

SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"


@pytest.fixture
def graph_of(tmp_path):
    def graph_of(content) -> Graph:
        path = tmp_path / "model.onnx"
        path.write_bytes(content.SerializeToString())
        return read(path, RequestedShapes({}, [], None))

    return graph_of


def layers(graph: Graph, original: Graph | None = None) -> list[tuple[str | None, str]]:
    return [(item.layer, item.rule) for item in with_layers(graph, original).nodes]


def test_layers_by_weights_and_neighbours(graph_of):
    assert layers(graph_of(onnx_files.convolutional())) == [
        ("body.0", "weights"), ("body", "neighbours"), ("body.2", "weights"),
        ("body", "neighbours"), ("body", "neighbours"), ("head", "weights"),
    ]  # fmt: skip


def test_a_weight_that_several_nodes_read_tells_no_layer(graph_of):
    """Exporters store equal parameters once, under the name of the first."""
    content = model(
        [node("Add", ["x", "a.bias"], ["b"]), node("Add", ["b", "a.bias"], ["y"])],
        [weight("a.bias", 8)],
    )
    assert layers(graph_of(content)) == [(None, "none")] * 2


def test_an_alias_of_a_weight_tells_the_layer(graph_of):
    """The TorchScript exporter copies equal parameters by Identity, under their own names."""
    content = model(
        [
            node("Identity", ["a.bias"], ["b.bias"]),
            node("Add", ["x", "a.bias"], ["c"]),
            node("Add", ["c", "b.bias"], ["y"]),
        ],
        [weight("a.bias", 8)],
    )
    assert layers(graph_of(content))[1:] == [("a", "weights"), ("b", "weights")]


def test_layers_by_the_exporters_note(graph_of):
    content = model([node("Relu", ["x"], ["y"])])
    classes = "['M', 'nn.Sequential', 'torch.nn.ReLU', 'aten.relu']"
    for key, value in ((SCOPES, "['', 'body', 'body.act', 'relu']"), (CLASSES, classes)):
        content.graph.node[0].metadata_props.add(key=key, value=value)
    (item,) = with_layers(graph_of(content)).nodes
    assert (item.layer, item.layer_type, item.rule) == ("body.act", "ReLU", "metadata")


@pytest.mark.parametrize("note", ["['a", "[1, 2]", "__import__('os')", "[" * 5000, "['a']"])
def test_a_note_that_is_no_list_of_scopes(graph_of, note):
    content = model([node("Relu", ["x"], ["y"])])
    content.graph.node[0].metadata_props.add(key=SCOPES, value=note)
    assert layers(graph_of(content)) == [(None, "none")]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/features/features.1/conv/conv.0/conv.0.0/Conv_2", "features.1.conv.0.0"),
        ("/model/encoder/layer.0/attention/self/Add", "model.encoder.layer.0.attention.self"),
        ("/Add", ""),
        ("resnet/block1/Conv2D", "resnet.block1"),
        ("node_Conv_12", None),
        ("", None),
        ("/a" * 1000, None),
    ],
)
def test_scopes_in_a_name(name, path):
    assert scope_path(name) == path


def test_a_module_that_is_called_again_is_one_layer(graph_of):
    """The TorchScript exporter numbers its calls; one with weights of its own has that name."""
    names = ["/b/act/Relu", "/b/act_1/Relu", "/b/act_2/Relu", "/b/act_4/Relu", "/b/fc/Relu",
             "/b/fc_1/Mul"]  # fmt: skip
    values = ["x", *"abcdef"]
    nodes = [
        node(
            name.rpartition("/")[2],
            [values[index], *(["b.fc_1.weight"] if "fc_1" in name else [])],
            [values[index + 1]],
            name=name,
        )
        for index, name in enumerate(names)
    ]
    graph = graph_of(model(nodes, [weight("b.fc_1.weight", 8)]))
    assert [layer for layer, _ in layers(graph)] == [
        "b.act", "b.act", "b.act", "b.act_4", "b.fc", "b.fc_1",
    ]  # fmt: skip


def test_an_optimised_graph_has_the_layers_of_the_original(graph_of):
    original = with_layers(graph_of(onnx_files.convolutional()))
    fused = model(
        [
            node("FusedConv", ["x", "w"], ["b_nchwc"], domain="com.microsoft", pads=[1] * 4),
            node("Relu", ["b_nchwc"], ["y"], name="g"),
        ],
        [weight("w", 4, 3, 3, 3)],
        domains=["com.microsoft"],
    )
    # The fused node makes what the ReLU made, which was an estimate.
    assert layers(graph_of(fused), original) == [("body", "neighbours"), ("head", "names")]


def test_a_written_out_norm_is_one_layer(graph_of):
    content = model(
        [
            node("ReduceMean", ["x"], ["mean"], axes=[-1]),
            node("Sub", ["x", "mean"], ["centred"]),
            node("Mul", ["centred", "centred"], ["square"]),
            node("ReduceMean", ["square"], ["variance"], axes=[-1]),
            node("Sqrt", ["variance"], ["deviation"]),
            node("Div", ["centred", "deviation"], ["normal"]),
            node("Mul", ["normal", "norm.weight"], ["scaled"]),
            node("Add", ["scaled", "norm.bias"], ["y"]),
        ],
        [weight("norm.weight", 8), weight("norm.bias", 8)],
        opset=17,
    )
    assert {layer for layer, _ in layers(graph_of(content))} == {"norm"}


@pytest.mark.parametrize(
    ("paths", "path"),
    [(["a.b.c", "a.b.d"], "a.b"), (["a.b"], "a.b"), (["a.b", "a"], "a"), (["a", "b"], "")],
)
def test_the_layer_that_holds_all(paths, path):
    assert common(paths) == path


def test_work_by_hand(graph_of):
    cost = graph_cost(with_work(with_layers(graph_of(onnx_files.convolutional()))))
    macs = 4 * 64 * 27 + 8 * 36 * 36 + 8 * 10
    assert cost.matmul_flops == 2 * macs
    assert cost.vector_flops == 256 + 288  # ReLU's outputs, the pool's inputs
    assert not cost.unknown
    by_layer = {layer.node.path: layer.work.macs for _, layer in cost.tree.walk()}
    assert by_layer == {
        "": macs, "body": 4 * 64 * 27 + 8 * 36 * 36, "body.0": 4 * 64 * 27,
        "body.2": 8 * 36 * 36, "head": 80,
    }  # fmt: skip
    assert [n.parameters for n in cost.nodes] == [490, 400, 112, 288, 90]
    relu = cost.by_operator()["onnx::Relu"]
    assert relu.bytes == 2 * 4 * 256


def test_a_loop_multiplies_and_one_without_end_is_unknown(graph_of):
    once = 2 * 2 * 4 * 4
    bounded = graph_cost(with_work(graph_of(onnx_files.loop(5, depth=2))))
    assert (bounded.matmul_flops, bounded.at_least) == (25 * once, False)
    endless = graph_cost(with_work(graph_of(onnx_files.loop(None))))
    assert endless.unknown == {"onnx::MatMul": 1, "onnx::Identity": 1}
    assert endless.totals["flops"] is None


def test_an_operator_without_formula_is_listed(graph_of):
    content = model([node("Sharpen", ["x"], ["y"], domain="com.example")], domains=["com.example"])
    graph = graph_of(content)
    cost = graph_cost(with_work(graph))
    assert cost.unknown == {"com.example::Sharpen": 1}
    assert [warning.id for warning in cost.warnings] == ["onnx-custom-operators"]


def test_a_value_that_is_read_twice_is_read_once(graph_of):
    square = with_work(graph_of(model([node("Mul", ["x", "x"], ["y"])], x=(4, 8)))).nodes[0]
    assert square.bytes == 2 * 4 * 8 * 4


@pytest.mark.parametrize(
    ("opset", "inputs", "transformed"), [(17, [], 6), (20, [], 4), (20, ["", "axis"], 6)]
)
def test_a_transform_is_along_its_axis(graph_of, opset, inputs, transformed):
    """The second dimension before opset 20, the last before real and imaginary parts since."""
    call = node("DFT", ["x", *inputs], ["y"])
    stored = [numpy_helper.from_array(np.array(1), "axis")] if inputs else []
    graph = graph_of(model([call], stored, x=(2, 6, 4, 2), opset=opset))
    points = 2 * 6 * 4
    assert with_work(graph).nodes[0].flops == round(5 * points * math.log2(transformed))


def test_weights_in_constants_are_parameters(graph_of):
    """A vector that is added is a table, unless it has a module's name."""
    arrays = {"/w": (8, 5), "fc.bias": (5,), "/table": (5,)}
    content = model(
        [
            *(
                node("Constant", [], [name],
                     value=numpy_helper.from_array(np.ones(shape, np.float16)))
                for name, shape in arrays.items()
            ),
            node("MatMul", ["x", "/w"], ["a"]),
            node("Add", ["a", "fc.bias"], ["b"]),
            node("Div", ["b", "/table"], ["y"]),
        ],
    )  # fmt: skip
    content.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    graph = graph_of(content)
    size = graph_size(graph)
    assert (size.parameters, size.buffers, floating_precision(graph)) == (45, 5, "fp16")
    assert layers(graph)[4] == ("fc", "weights")


def test_scales_of_a_resizing_are_no_parameters(graph_of):
    content = model(
        [node("Resize", ["x", "", "up.scales"], ["y"])],
        [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "up.scales")],
    )
    size = graph_size(graph_of(content))
    assert (size.parameters, size.buffers) == (0, 4)


def test_a_number_that_no_record_holds_is_unknown(graph_of):
    graph = graph_of(onnx_files.hostile()["input of 2**120"]())
    assert graph_cost(with_work(graph)).totals["flops"] is None
    msgspec.json.encode(graph)


def test_nodes_without_layer_beside_others_have_a_place_of_their_own(graph_of):
    graph = with_layers(graph_of(onnx_files.convolutional()))
    lost = msgspec.structs.replace(graph.nodes[1], layer=None, rule="none")
    graph = msgspec.structs.replace(graph, nodes=(graph.nodes[0], lost, *graph.nodes[2:]))
    cost = graph_cost(with_work(graph))
    assert {n.path: n.parent for n in cost.nodes}[NO_LAYER] == 0
    assert graph_facts(graph).nodes_by_rule == {"weights": 3, "neighbours": 2, "none": 1}


def test_size_counts_parameters_and_constants(graph_of):
    stored = [weight("body.0.weight", 4, 3, 3, 3), weight("val_3", 1, 4, 8, 8),
              weight("bn.running_mean", 4), weight("cls_token", 1, 4, 8, 8)]  # fmt: skip
    content = model(
        [
            node("Conv", ["x", "body.0.weight"], ["a"], pads=[1] * 4),
            node("Add", ["a", "val_3"], ["b"]),
            node("Add", ["b", "cls_token"], ["y"]),
        ],
        stored,
    )
    graph = graph_of(content)
    size = graph_size(graph)
    assert (size.parameters, size.buffers) == (108 + 256, 256 + 4)
    assert size.bytes == 4 * (108 + 256 + 256 + 4)
    assert size.disk_bytes == graph.file_bytes
    assert floating_precision(graph) == "fp32"


def test_scales_of_quantised_weights_are_no_parameters_and_packed_ones_count_unpacked(graph_of):
    stored = [
        numpy_helper.from_array(np.ones((4, 3, 3, 3), np.int8), "conv.weight_quantized"),
        weight("conv.weight_scale", 4),
        numpy_helper.from_array(np.ones(4, np.int32), "conv.bias_quantized"),
        weight("conv.bias_scale", 4),
        numpy_helper.from_array(np.ones((16, 1, 16), np.uint8), "fc.weight_Q4"),
        weight("fc.weight_scales", 16),
        weight("onnx::Concat_7", 1, 4, 1, 1),
    ]
    content = model(
        [
            node("DequantizeLinear", ["conv.weight_quantized", "conv.weight_scale"], ["w"], axis=0),
            node("DequantizeLinear", ["conv.bias_quantized", "conv.bias_scale"], ["b"], axis=0),
            node("Conv", ["x", "w", "b"], ["y"]),
            node("Concat", ["onnx::Concat_7", "x"], ["z"], axis=2),
            node("MatMulNBits", ["x", "fc.weight_Q4", "fc.weight_scales"], ["o"],
                 domain="com.microsoft", K=32, N=16, bits=4, block_size=32),
        ],
        stored,
        domains=["com.microsoft"],
    )  # fmt: skip
    graph = graph_of(content)
    size = graph_size(graph)
    assert (size.parameters, size.buffers) == (108 + 4 + 32 * 16 + 4, 4 + 4 + 16)
    assert graph_facts(graph).made_parameters == 4


def stored_as(kind, **shapes: tuple[int, ...]):
    return [
        numpy_helper.from_array(np.ones(shape, kind), name.replace("__", "."))
        for name, shape in shapes.items()
    ]


@pytest.mark.parametrize(
    ("nodes", "stored", "parameters"),
    [
        ([node("DynamicQuantizeLSTM", ["x", "W", "R", "B", "", "", "", "", "ws", "wz", "rs", "rz"],
               ["y"], domain="com.microsoft", hidden_size=16, direction="bidirectional")],
         stored_as(np.int8, W=(2, 8, 64), R=(2, 16, 64), wz=(2,), rz=(2,))
         + stored_as(np.float32, B=(2, 128), ws=(2,), rs=(2,)), 3328),
        ([node("QAttention", ["x", "a.q", "b", "xs", "a.scale", "", "xz", "wz"], ["y"],
               domain="com.microsoft", num_heads=4)],
         stored_as(np.int8, a__q=(64, 192), wz=(1,)) + stored_as(np.uint8, xz=(1,))
         + stored_as(np.float32, b=(192,), xs=(1,), a__scale=(1,)), 12480),
        ([node("GatherBlockQuantized", ["e.q", "i", "e.scales"], ["y"], domain="com.microsoft",
               bits=4, block_size=32, quantize_axis=1)],
         stored_as(np.uint8, e__q=(1000, 32)) + stored_as(np.float32, e__scales=(1000, 2)), 64_000),
        ([node("QMoE", ["x", "r", "f1", "f.s1", "", "f2", "f.s2"], ["y"], domain="com.microsoft",
               expert_weight_bits=4, fc2_expert_weight_bits=8)],
         stored_as(np.uint8, f1=(2, 6, 4), f2=(2, 8, 6))
         + stored_as(np.float32, f__s1=(2, 6), f__s2=(2, 8)), 96 + 96),
        ([node("QEmbedLayerNormalization",
               ["i", "", "w", "p", "", "g", "b", "", "e.ws", "e.ps", "", "e.gs", "e.bs", "wz"],
               ["y"], domain="com.microsoft")],
         stored_as(np.uint8, w=(50, 8), p=(16, 8), g=(8,), b=(8,), wz=(1,))
         + stored_as(np.float32, e__ws=(1,), e__ps=(1,), e__gs=(1,), e__bs=(1,)), 544),
        ([node("Gather", ["t", "i"], ["r"]), node("DequantizeLinear", ["r", "t.scale"], ["y"])],
         stored_as(np.uint8, t=(3, 10, 8)) + stored_as(np.float32, t__scale=(1,)), 240),
        ([node("Gather", ["t", "i"], ["r"]), node("Cast", ["r"], ["y"], to=1)],
         stored_as(np.int8, t=(10, 8)), 80),
        ([node("Gather", ["t", "i"], ["y"])], stored_as(np.uint8, t=(80,)), 0),
        ([node("BatchNormalization", ["x", "bn.w_0", "bn.b_0", "bn.w_1", "bn.w_2"], ["y"])],
         stored_as(np.float32, bn__w_0=(3,), bn__b_0=(3,), bn__w_1=(3,), bn__w_2=(3,)), 6),
    ],
)  # fmt: skip
def test_weights_and_what_belongs_to_them(graph_of, nodes, stored, parameters):
    graph = graph_of(model(nodes, stored, domains=["com.microsoft"]))
    assert graph_size(graph).parameters == parameters
    assert graph_cost(graph).nodes[0].parameters == parameters


def test_equal_names_in_two_branches_are_two_tensors(graph_of):
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branches = [
        helper.make_graph([node("MatMul", ["x", "w"], ["r"])], name, [], [result], stored)
        for name, stored in (("a", [weight("w", 4, 10)]), ("b", [weight("w", 4, 5)]))
    ]
    choice = node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    size = graph_size(graph_of(model([choice], x=(2, 4))))
    assert (size.parameters, size.bytes) == (60, 240)


@pytest.mark.parametrize(
    ("name", "is_made_up"),
    [("val_40", True), ("onnx::Conv_193", True), ("/a/Constant_output_0", True), ("312", True),
     ("expand_2", True), ("slice_1", True), ("cls_token", False), ("pos_embed", False),
     ("a.b.weight", False), ("logit_scale", False)],
)  # fmt: skip
def test_names_that_exporters_make_up(name, is_made_up):
    assert made_up(name) == is_made_up
