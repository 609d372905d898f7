"""Graphs of ONNX files: types, loops, functions, and files that were made to do harm."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from tests.support import onnx_files
from tests.support.onnx_files import FLOAT, INT, model, node, weight

from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.analyze.onnx.node_work import with_work
from torchgauge.errors import InputError, MissingExtraError
from torchgauge.readers.onnx import model_proto, onnx_file
from torchgauge.readers.onnx.onnx_file import answered
from torchgauge.records.finding import Answer
from torchgauge.records.onnx.graph import Graph


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Read here, which starts no process; `test_own_process` does."""

    def ask(_path: Path, question: dict) -> Answer[Graph]:
        return msgspec.msgpack.decode(answered(question), type=Answer[Graph])

    monkeypatch.setattr(onnx_file, "_ask", ask)


def read(tmp_path: Path, content: ModelProto, *args, **kwargs) -> Graph:
    path = tmp_path / "model.onnx"
    path.write_bytes(content.SerializeToString())
    return onnx_file.read_graph(path, *args, **kwargs)


def shapes(graph: Graph) -> list:
    return [kind.shape for item in graph.nodes for kind in item.output_types]


def test_every_value_has_its_shape(tmp_path):
    graph = read(tmp_path, onnx_files.convolutional())
    assert shapes(graph) == [
        (1, 4, 8, 8), (1, 4, 8, 8), (1, 8, 6, 6), (1, 8, 1, 1), (1, 8), (1, 10),
    ]  # fmt: skip
    assert graph.nodes[0].attributes == {"pads": (1, 1, 1, 1)}
    assert [tensor.bytes for tensor in graph.initializers] == [432, 16, 1152, 320, 40]


def test_sizes_that_are_computed(tmp_path):
    """x.view(x.shape[0], 2, -1), as the TorchScript exporter writes it."""
    index = numpy_helper.from_array(np.array(0), "zero")
    rest = numpy_helper.from_array(np.array([2, -1]), "rest")
    axes = numpy_helper.from_array(np.array([0]), "axes")
    graph = read(
        tmp_path,
        model(
            [
                node("Shape", ["x"], ["s"]),
                node("Gather", ["s", "zero"], ["n"]),
                node("Unsqueeze", ["n", "axes"], ["n1"]),
                node("Concat", ["n1", "rest"], ["sizes"], axis=0),
                node("Reshape", ["x", "sizes"], ["y"]),
            ],
            [index, rest, axes],
            x=(5, 3, 4),
        ),
    )
    assert graph.values["y"].shape == (5, 2, 6)


def test_sizes_by_a_remainder_and_backwards(tmp_path):
    """Padding to a multiple, as the TorchScript exporter writes it: pads in the reverse order."""
    numbers = {"size": 5, "window": 4, "first": -1, "last": -9, "back": -1, "axis": 0}
    stored = [numpy_helper.from_array(np.array([n]), name) for name, n in numbers.items()]
    stored.append(numpy_helper.from_array(np.zeros(3, np.int64), "before"))
    graph = read(
        tmp_path,
        model(
            [
                node("Mod", ["size", "window"], ["rest"]),
                node("Concat", ["before", "rest"], ["pads"], axis=0),
                node("Slice", ["pads", "first", "last", "axis", "back"], ["reversed"]),
                node("Pad", ["x", "reversed"], ["y"]),
            ],
            stored,
            x=(5, 3),
        ),
    )
    assert graph.values["y"].shape == (6, 3)
    stop = numpy_helper.from_array(np.array([-3]), "last")  # of more than two elements
    content = model(
        [node("Slice", ["sizes", "first", "last", "axis", "back"], ["n"]),
         node("Expand", ["x", "n"], ["y"])],
        [numpy_helper.from_array(np.array([9, 4, 5, 3]), "sizes"), stop,
         *(tensor for tensor in stored if tensor.name in ("first", "axis", "back"))],
        x=(1, 1),
    )  # fmt: skip
    assert read(tmp_path, content).values["y"].shape == (3, 5)


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (node("Split", ["n"], ["", "s"], num_outputs=2), (2, 6)),
        (node("ReduceSum", ["n", "none"], ["s"], noop_with_empty_axes=1), (3, 4, 1, 2, 6)),
        (node("ReduceSum", ["n", "none"], ["s"]), (16,)),
        (node("ReduceSum", ["n"], ["s"], noop_with_empty_axes=1), (3, 4, 1, 2, 6)),
    ],
)
def test_sizes_by_operators_without_sizes_or_axes(tmp_path, call, shape):
    stored = [
        numpy_helper.from_array(np.array(values, np.int64), name)
        for name, values in (("n", [3, 4, 1, 2, 6]), ("none", []))
    ]
    content = model([call, node("Expand", ["x", "s"], ["y"])], stored, x=(1,))
    assert read(tmp_path, content).values["y"].shape == shape


def test_a_batch_is_that_of_free_first_dimensions(tmp_path):
    infos = [helper.make_tensor_value_info("x", FLOAT, ["n", 4]),
             helper.make_tensor_value_info("scale", FLOAT, [1])]  # fmt: skip
    result = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph([node("Mul", ["x", "scale"], ["y"])], "g", infos, [result])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert read(tmp_path, content, batch=3).values["y"].shape == (3, 4)
    with pytest.raises(InputError, match="cannot be called") as raised:
        read(tmp_path, onnx_files.convolutional(), batch=3)
    assert "batch is fixed in the file: 1" in raised.value.cause


def test_only_tensors_of_the_same_bytes_are_one(tmp_path):
    """Files of equal names in two folders, and a tensor without elements, hold others."""
    tensors = []
    for name, location, size in (("a", "one/w", 4), ("b", "two/w", 4), ("c", "one/w", 0),
                                 ("d", "one/w", 4)):  # fmt: skip
        (tmp_path / location).parent.mkdir(exist_ok=True)
        (tmp_path / location).write_bytes(bytes(16))
        tensor = TensorProto(name=name, data_type=FLOAT, dims=[size])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", str(4 * size))):
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    graph = read(tmp_path, model([node("Relu", ["x"], ["y"])], tensors))
    assert [tensor.shared for tensor in graph.initializers] == ["", "", "", "a"]


def test_free_dimensions_are_given_once(tmp_path):
    """A name that one input gives a size has it everywhere."""
    graph = helper.make_graph(
        [node("Add", ["a", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, FLOAT, ["batch", "length"]) for name in "ab"],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert read(tmp_path, content).values["a"].shape == ("batch", "length")
    assert read(tmp_path, content, {"b": (2, 7)}).values["y"].shape == (2, 7)
    assert read(tmp_path, content, {}, [(2, 7)]).values["b"].shape == (2, 7)
    assert read(tmp_path, content, batch=3).values["a"].shape == (3, "length")
    for named, positional in (({"c": (1, 1)}, []), ({"a": (1,)}, []), ({"a": (1, 2)}, [(1, 3)])):
        with pytest.raises(InputError) as raised:
            read(tmp_path, content, named, positional)
        assert raised.value.id == "onnx-input-shape"


def test_a_fixed_dimension_cannot_be_changed(tmp_path):
    with pytest.raises(InputError, match="cannot be called") as raised:
        read(tmp_path, onnx_files.convolutional(), {}, [(1, 3, 9, 9)])
    assert "the 8 is fixed" in raised.value.cause


@pytest.mark.parametrize(
    ("trips", "condition", "calls"), [(5, True, 5), (0, True, 0), (5, False, 0), (None, True, None)]
)
def test_a_loop_runs_its_body(tmp_path, trips, condition, calls):
    graph = read(tmp_path, onnx_files.loop(trips, condition=condition))
    assert [(item.operator, item.container, item.calls) for item in graph.nodes] == [
        ("Loop", -1, 1), ("MatMul", 0, calls), ("Identity", 0, calls),
    ]  # fmt: skip


def test_loops_multiply(tmp_path):
    graph = read(tmp_path, onnx_files.loop(3, depth=3))
    assert {item.operator: item.calls for item in graph.nodes}["MatMul"] == 27


def growing(trips: int, end: int) -> ModelProto:
    """Return a loop that puts a row at the end of its value, up to a size in the body."""
    body = helper.make_graph(
        [node("Concat", ["v", "row"], ["longer"], axis=0), node("Relu", ["longer"], ["v_out"]),
         node("Identity", ["go"], ["goes"])],
        "body",
        [helper.make_tensor_value_info("i", INT, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", FLOAT, None)],
        [helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v_out", FLOAT, None)],
    )  # fmt: skip
    stored = [weight("row", end, 4), numpy_helper.from_array(np.array(True), "start"),
              numpy_helper.from_array(np.array(trips, np.int64), "trips")]  # fmt: skip
    return model([node("Loop", ["trips", "start", "x"], ["y"], body=body)], stored, x=(2, 4))


@pytest.mark.parametrize(("trips", "end", "calls"), [(3, 1, None), (1, 1, 1), (3, 0, 3)])
def test_a_loop_whose_value_grows_is_its_first_trip_alone(tmp_path, trips, end, calls):
    graph = read(tmp_path, growing(trips, end))
    assert {item.calls for item in graph.nodes[1:]} == {calls}


def test_a_branch_that_is_decided_and_one_that_is_not(tmp_path):
    branches = {
        name: helper.make_graph(
            [node(operator, ["x"], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", FLOAT, None)],
            [weight(f"{name}.weight", 4)],
        )
        for name, operator in (("then_branch", "Relu"), ("else_branch", "Tanh"))
    }
    for stored, calls in ((True, {"Relu": 1}), (None, {"Relu": None, "Tanh": None})):
        first = [] if stored else [node("ReduceMax", ["x"], ["m"], keepdims=0),
                                   node("Cast", ["m"], ["c"], to=TensorProto.BOOL)]  # fmt: skip
        constants = [numpy_helper.from_array(np.array(True), "c")] if stored else []
        graph = read(tmp_path, model([*first, node("If", ["c"], ["y"], **branches)], constants))
        inside = {item.operator: item.calls for item in graph.nodes if item.container >= 0}
        assert inside == calls
        assert graph.values["y"].shape == (1, 3, 8, 8)
        names = {tensor.name for tensor in graph.initializers}
        assert names >= {"then_branch.weight", "else_branch.weight"}


def constant(name: str, values: np.ndarray) -> NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(values))


def test_weights_in_constants_are_stored(tmp_path):
    """Some exporters write all of them so; sizes and single numbers are none."""
    graph = read(
        tmp_path,
        model(
            [
                constant("fc.weight", np.ones((8, 5), np.float32)),
                constant("sizes", np.array([1, 3, 8, 5])),
                constant("half", np.array(0.5, np.float32)),
                node("MatMul", ["x", "fc.weight"], ["a"]),
                node("Mul", ["a", "half"], ["b"]),
                node("Reshape", ["b", "sizes"], ["y"]),
            ]
        ),
    )
    assert [(tensor.name, tensor.bytes) for tensor in graph.initializers] == [("fc.weight", 160)]
    assert graph.values["y"].shape == (1, 3, 8, 5)


def test_scan_runs_once_for_each_slice(tmp_path):
    body = helper.make_graph(
        [node("Add", ["state", "slice"], ["next"]), node("Identity", ["next"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("state", "slice")],
        [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("next", "out")],
    )
    scan = node("Scan", ["start", "x"], ["last", "y"], num_scan_inputs=1, body=body)
    graph = read(tmp_path, model([scan], [weight("start", 4)], x=(6, 4)))
    assert [item.calls for item in graph.nodes] == [1, 6, 6]
    assert graph.values["y"].shape == (6, 4)


def test_scan_of_an_old_opset_has_a_batch(tmp_path):
    infos = [helper.make_tensor_value_info(name, FLOAT, [4]) for name in ("s", "v", "t", "o")]
    nodes = [node("Add", ["s", "v"], ["t"]), node("Identity", ["t"], ["o"])]
    body = helper.make_graph(nodes, "body", infos[:2], infos[2:])
    scan = node("Scan", ["", "start", "x"], ["last", "y"], num_scan_inputs=1, body=body)
    graph = read(tmp_path, model([scan], [weight("start", 2, 4)], x=(2, 6, 4), opset=8))
    assert [item.calls for item in graph.nodes] == [1, None, None]


def test_functions_are_expanded(tmp_path):
    graph = read(tmp_path, onnx_files.nested_functions(3, 2))
    assert [item.operator for item in graph.nodes] == ["Relu"] * 8
    assert graph.values["y"].shape == (1, 3, 8, 8)


def test_a_function_of_another_opset_is_expanded(tmp_path):
    """Since opset 13 the axes of ReduceSum are an input."""
    body = onnx_files.function("f", [node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)])
    body.opset_import[0].version = 11
    call = node("f", ["x"], ["y"], domain="local")
    graph = read(tmp_path, model([call], functions=[body], domains=["local"]))
    assert (graph.nodes[-1].operator, graph.custom_domains) == ("ReduceSum", ())
    assert graph.values["y"].shape == (1, 8, 8)


def test_a_function_that_stays_is_no_operator_of_a_library(tmp_path, monkeypatch):
    monkeypatch.setattr(model_proto, "inline_local_functions", lambda model, **_: model)
    assert read(tmp_path, onnx_files.nested_functions(0, 1)).custom_domains == ()


def test_a_weight_of_a_function_is_stored_once(tmp_path):
    body = [node("Constant", [], ["w"], value=weight("", 4, 4)), node("MatMul", ["x", "w"], ["y"])]
    calls = [node("f", ["x"], ["a"], domain="local"), node("f", ["a"], ["y"], domain="local")]
    function = onnx_files.function("f", body)
    content = model(calls, x=(2, 4), functions=[function], domains=["local"])
    size = graph_size(read(tmp_path, content))
    assert (size.parameters, size.bytes) == (16, 64)


def test_custom_domains_are_named(tmp_path):
    custom = node("Sharpen", ["x"], ["y"], domain="com.example")
    graph = read(tmp_path, model([custom], domains=["com.example"]))
    assert graph.custom_domains == ("com.example",)
    assert graph.nodes[0].full_operator == "com.example::Sharpen"


def test_old_files_have_initializers_among_the_inputs(tmp_path):
    content = onnx_files.convolutional()
    content.graph.input.append(helper.make_tensor_value_info("head.bias", FLOAT, [10]))
    assert read(tmp_path, content).inputs == ("x",)


def test_external_tensors_are_sized_and_not_read(tmp_path):
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    graph = read(tmp_path, onnx_files.external("weights.bin"))
    assert graph.files == ("model.onnx", "weights.bin")
    assert graph.file_bytes == (tmp_path / "model.onnx").stat().st_size + 64


def test_one_place_of_a_file_is_one_tensor(tmp_path):
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    content = onnx_files.external("weights.bin")
    content.graph.initializer.add().CopyFrom(content.graph.initializer[0])
    content.graph.initializer[1].name = "v"
    assert [tensor.shared for tensor in read(tmp_path, content).initializers] == ["", "w"]


@pytest.mark.parametrize("what", sorted(onnx_files.hostile()))
def test_a_result_or_an_error(tmp_path, what):
    """Nothing else is raised, and what is refused says why."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_files.hostile()[what]().SerializeToString())
    question = {"file": str(path), "shapes": {}, "positional": [], "batch": None}
    answer = msgspec.msgpack.decode(answered(question), type=Answer[Graph])
    if (failure := answer.failure) is not None:
        assert failure.id in ("onnx-unreadable", "onnx-functions", "onnx-too-large")
        assert failure.cause
        assert failure.remedy
    else:
        assert answer.value.nodes


@pytest.mark.parametrize("what", ["function calls itself", "functions in a circle",
                                  "functions that grow"])  # fmt: skip
def test_functions_without_end_are_refused(tmp_path, what):
    with pytest.raises(InputError) as raised:
        read(tmp_path, onnx_files.hostile()[what]())
    assert raised.value.id == "onnx-functions"


@pytest.mark.parametrize("what", ["long name", "deep name", "changed name", "name of a tensor"])
def test_names_longer_than_exporters_write_are_refused(tmp_path, what):
    with pytest.raises(InputError) as raised:
        read(tmp_path, onnx_files.hostile()[what]())
    assert raised.value.id == "onnx-too-large"
    assert "a name of" in raised.value.message


def test_no_file_elsewhere_is_used(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    refused = [_refusal(folder, make) for _, make in onnx_files.outside(folder)]
    assert set(refused) == {"external-data-outside", "external-data-missing"}
    assert refused.count("external-data-missing") == 2  # file:/… and the folder itself


def _refusal(folder: Path, make) -> str:
    with pytest.raises(InputError) as raised:
        read(folder, make())
    return raised.value.id


@pytest.mark.parametrize(
    ("offset", "length"), [("32", "64"), ("-1", "64"), ("0", "63"), ("x", "64"), ("9" * 30, "64")]
)
def test_a_range_that_does_not_fit_is_refused(tmp_path, offset, length):
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    with pytest.raises(InputError) as raised:
        read(tmp_path, onnx_files.external("weights.bin", offset=offset, length=length))
    assert raised.value.id == "onnx-unreadable"


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x0a", bytes(100)])
def test_what_is_no_model(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        onnx_file.read_graph(path)
    assert raised.value.id == "onnx-unreadable"


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="onnx"):
        read(tmp_path, onnx_files.convolutional())


def test_token_ids_keep_their_type(tmp_path):
    graph = helper.make_graph(
        [node("Gather", ["table", "ids"], ["y"])],
        "g",
        [helper.make_tensor_value_info("ids", INT, [1, 7])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [weight("table", 100, 16)],
    )
    graph = read(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert graph.values["ids"].dtype == "int64"
    assert graph.values["y"].shape == (1, 7, 16)


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def quantised(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint8)


IDS, NUMBER, ZERO = np.zeros((2, 5), np.int32), floats(), quantised()
HIDDEN = floats(2, 5, 32)
LENGTHS = (np.full(2, 4, np.int32), np.array(5, np.int32))


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "types"),
    [
        ("QLinearConcat", [NUMBER, ZERO, quantised(2, 3), NUMBER, ZERO, quantised(2, 4), NUMBER,
                           ZERO], {"axis": 1}, ["uint8 2x7"]),
        ("QLinearGlobalAveragePool", [quantised(1, 4, 4, 3), NUMBER, ZERO, NUMBER, ZERO],
         {"channels_last": 1}, ["uint8 1x1x1x3"]),
        ("QLinearWhere", [np.ones((2, 3), bool), quantised(1, 3), NUMBER, ZERO, quantised(2, 1),
                          NUMBER, ZERO, NUMBER, ZERO], {}, ["uint8 2x3"]),
        ("QLinearAdd", [quantised(2, 3), NUMBER, ZERO, quantised(3), NUMBER, ZERO, NUMBER, ZERO],
         {}, ["uint8 2x3"]),
        ("QLinearAveragePool", [quantised(1, 3, 4, 4), NUMBER, ZERO, NUMBER, ZERO],
         {"kernel_shape": (2, 2)}, ["uint8 1x3x3x3"]),
        ("QuantizeLinear", [floats(2, 3), NUMBER, np.zeros((), np.uint16)], {}, ["uint16 2x3"]),
        ("DequantizeLinear", [np.zeros((2, 3), np.uint16), NUMBER], {}, ["float32 2x3"]),
        ("QGemm", [quantised(3, 4), NUMBER, ZERO, quantised(5, 4), NUMBER, ZERO, None, NUMBER,
                   ZERO], {"transB": 1}, ["uint8 3x5"]),
        ("QGemm", [quantised(3, 4), NUMBER, ZERO, quantised(4, 5), NUMBER, ZERO], {},
         ["float32 3x5"]),
        ("MatMulIntegerToFloat", [quantised(2, 3, 4), quantised(4, 5), NUMBER, NUMBER], {},
         ["float32 2x3x5"]),
        ("QAttention", [quantised(2, 5, 32), quantised(32, 96), floats(96), NUMBER, NUMBER],
         {"num_heads": 4}, ["float32 2x5x32"]),
        ("Attention", [HIDDEN, floats(32, 96), floats(96), None, floats(2, 2, 4, 3, 8)],
         {"num_heads": 4}, ["float32 2x5x32", "float32 2x2x4x8x8"]),
        ("MultiHeadAttention", [HIDDEN, floats(2, 7, 32), floats(2, 7, 32)], {"num_heads": 4},
         ["float32 2x5x32", "float32 2x4x7x8", "float32 2x4x7x8"]),
        ("DecoderMaskedMultiHeadAttention",
         [floats(2, 1, 32)] * 3 + [None, None, floats(2, 4, 6, 8), floats(2, 4, 6, 8)],
         {"num_heads": 4, "past_present_share_buffer": 1}, ["float32 2x1x32", "float32 2x4x6x8"]),
        ("GroupQueryAttention", [floats(2, 5, 64), None, None, None, None, *LENGTHS],
         {"num_heads": 4, "kv_num_heads": 2},
         ["float32 2x5x32", "float32 2x2x5x8", "float32 2x2x5x8"]),
        ("EmbedLayerNormalization", [IDS, None, floats(50, 16), floats(9, 16), None, floats(16),
                                     floats(16)], {}, ["float32 2x5x16", "int32 2"]),
        ("SkipLayerNormalization", [HIDDEN, HIDDEN, floats(32)], {},
         ["float32 2x5x32", "", "", "float32 2x5x32"]),
        ("onnx::LayerNormalization", [HIDDEN, floats(32)], {"axis": -1}, ["float32 2x5x32"]),
        ("onnx::SimplifiedLayerNormalization", [HIDDEN, floats(32)], {}, ["float32 2x5x32"]),
        ("FusedMatMul", [floats(1, 6, 4, 3), floats(2, 1, 4, 5)], {"transA": 1},
         ["float32 2x6x3x5"]),
        ("DynamicQuantizeLSTM", [floats(3, 2, 8), quantised(2, 8, 64), quantised(2, 16, 64),
                                 *[None] * 5, *[floats(2), quantised(2)] * 2],
         {"hidden_size": 16, "direction": "bidirectional"}, ["float32 3x2x2x16", "float32 2x2x16"]),
        ("MultiHeadAttention", [floats(32)], {"num_heads": 4}, [" None"]),
    ],
)  # fmt: skip
def test_types_that_onnx_does_not_know(tmp_path, operator, inputs, attributes, types):
    """As ONNX Runtime returns them, which knows them all; each then has its work."""
    names = ["x", *(f"i{number}" for number in range(1, len(inputs)))]
    names = [name if array is not None else "" for name, array in zip(names, inputs, strict=True)]
    outputs = ["y", *(f"y{number}" if types[number] else "" for number in range(1, len(types)))]
    domain = "" if operator.startswith("onnx::") else "com.microsoft"
    call = node(operator.removeprefix("onnx::"), names, outputs, domain=domain, **attributes)
    stored = [
        numpy_helper.from_array(array, name)
        for name, array in zip(names, inputs, strict=True)
        if name not in ("", "x")
    ]
    content = model([call], stored, x=inputs[0].shape, opset=13, domains=["com.microsoft"])
    dtype = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    content.graph.input[0].type.tensor_type.elem_type = dtype
    content.graph.output[0].type.Clear()
    (result,) = with_work(read(tmp_path, content)).nodes
    assert [
        f"{kind.dtype} {'x'.join(map(str, kind.shape)) if kind.shape else kind.shape}"
        for kind in result.output_types
    ] == [text or " None" for text in types]
    assert (result.flops is None) == (types == [" None"])
