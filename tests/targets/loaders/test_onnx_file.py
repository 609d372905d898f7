"""`.onnx` files as targets: counted without being run."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, helper
from tests.support import onnx_files
from tests.support.onnx_files import FLOAT, INT, model, node, weight

import torchgauge as tg
from torchgauge.api import profiles
from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.targets.inputs.input_spec import InputSpec
from torchgauge.targets.loaders.load import load
from torchgauge.targets.quantization import Variant
from torchgauge.targets.target import TargetRequest


@pytest.fixture
def written(tmp_path):
    def written(content, name="model.onnx"):
        path = tmp_path / name
        path.write_bytes(content.SerializeToString())
        return str(path)

    return written


def tokens():
    graph = helper.make_graph(
        [node("Gather", ["table.weight", "input_ids"], ["a"]), node("Mul", ["a", "scale"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("input_ids", INT, ["batch", "length"]),
            helper.make_tensor_value_info("scale", FLOAT, ["batch", 1, 4]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [weight("table.weight", 50, 4)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_count_needs_no_trust(written, capsys):
    path = written(onnx_files.convolutional())
    assert main(["count", path, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["target"]["kind"] == "onnx"
    assert record["size"]["parameters"] == 490
    assert record["totals"]["macs"] == 4 * 64 * 27 + 8 * 36 * 36 + 80
    assert record["graph"]["nodes_by_rule"] == {"weights": 3, "neighbours": 3}
    assert record["cost"]["counted_on"] == "onnx"


def test_inputs_of_fixed_and_free_shapes(written):
    path = written(tokens())
    inputs = ("input_ids=2x7:int64<50",)
    target = load(TargetRequest(path, inputs=inputs))
    ids, scale = target.inputs.kwargs["input_ids"], target.inputs.kwargs["scale"]
    assert (tuple(ids.shape), tuple(scale.shape)) == ((2, 7), (2, 1, 4))
    assert 2 <= int(ids.max()) < 50
    assert (target.tokens, target.batch) == (14, 2)
    batch = load(TargetRequest(path, inputs=("input_ids=1x7",), batch=3))
    assert tuple(batch.inputs.kwargs["scale"].shape) == (3, 1, 4)


@pytest.mark.parametrize(
    ("inputs", "batch", "id", "text"),
    [
        ((), None, "onnx-free-dimensions", "input_ids is batchxlength"),
        pytest.param(
            (), 2, "onnx-free-dimensions", "input_ids is 2xlength", marks=pytest.mark.thorough
        ),
        (("input_ids=1x7:float32",), None, "onnx-input-type", "takes int64"),
        (("other=1x7",), None, "onnx-input-shape", "no input 'other'"),
    ],
)
def test_what_is_missing_is_named(written, inputs, batch, id, text):
    with pytest.raises(InputError) as raised:
        load(TargetRequest(written(tokens()), inputs=inputs, batch=batch))
    assert raised.value.id == id
    assert text in raised.value.cause
    assert raised.value.remedy


def test_a_batch_that_the_file_fixes(written):
    with pytest.raises(InputError) as raised:
        load(TargetRequest(written(onnx_files.convolutional()), batch=4))
    assert raised.value.id == "onnx-input-shape"


def test_it_is_counted_and_not_trained(written, capsys):
    path = written(model([node("Relu", ["x"], ["y"])]))
    assert main(["count", path, "--backward"]) == 2
    assert "option-conflict" in capsys.readouterr().err
    assert main(["count", path, "--weights", path]) == 2


@pytest.mark.parametrize("form", [["--by", "operator"], ["--csv"], ["--by", "type"]])
def test_forms(written, capsys, form):
    assert main(["count", written(onnx_files.convolutional()), *form]) == 0
    assert capsys.readouterr().out


def of_types() -> ModelProto:
    """Return a model of a float, a text and a sequence; the latter two are not used."""
    content = model([node("Relu", ["x"], ["y"])], x=(2, 4))
    texts = helper.make_tensor_value_info("texts", TensorProto.STRING, [3])
    floats = helper.make_tensor_type_proto(FLOAT, [2])
    content.graph.input.append(texts)
    content.graph.input.append(
        helper.make_value_info("list", helper.make_sequence_type_proto(floats))
    )
    return content


@pytest.mark.thorough
def test_what_is_counted_needs_no_values(written):
    path = written(of_types())
    counted = load(TargetRequest(path, device="meta"))
    assert counted.graph.nodes[0].flops == 8
    assert [tuple(tensor.shape) for _, tensor in counted.inputs.tensors()] == [(2, 4)]
    with pytest.raises(InputError) as raised:
        load(TargetRequest(path))
    assert raised.value.id == "onnx-input-type"
    own = (InputSpec(None, (2, 4)), InputSpec(None, (3,)), InputSpec(None, ()))
    assert load(TargetRequest(path, inputs=own, own_inputs=True)).graph.nodes[0].flops == 8


def test_names_with_signs_are_given_as_they_are(written):
    content = tokens()
    content.graph.input[0].name = content.graph.node[0].input[1] = "past.0:input/ids"
    request = TargetRequest(written(content), inputs=("past.0:input/ids=2x7",), device="meta")
    assert load(request).graph.nodes[0].output_types[0].shape == (2, 7, 4)


@pytest.mark.thorough
def test_a_length_is_that_of_the_graph(written):
    """Work, inputs and bounds of token numbers, by a sweep over lengths."""
    path = written(tokens())
    inputs = ("input_ids=2x7:int64<50", "2x1x4")
    placement = Variant(TargetRequest(path, inputs=inputs), seq_len=11, device="meta").open()
    assert [kind.shape for kind in placement.target.graph.nodes[1].output_types] == [(2, 11, 4)]
    assert placement.target.graph.nodes[1].flops == 2 * 11 * 4
    target = Variant(TargetRequest(path, inputs=inputs), seq_len=11, batch=3).open().target
    ids = target.inputs.kwargs["input_ids"]
    assert (tuple(ids.shape), target.tokens) == ((3, 11), 33)
    assert int(ids.max()) > 2
    with pytest.raises(InputError) as raised:
        Variant(TargetRequest(written(fixed_tokens(), "fixed.onnx")), seq_len=11).open()
    assert "fixed in the file" in raised.value.cause


def fixed_tokens() -> ModelProto:
    content = tokens()
    for value, sizes in zip(content.graph.input, ((2, 7), (2, 1, 4)), strict=True):
        for dimension, size in zip(value.type.tensor_type.shape.dim, sizes, strict=True):
            dimension.dim_value = size
    return content


def test_inputs_of_the_caller_are_sizes(written, monkeypatch):
    """Names of any kind, arrays, scalars at their place, a past of length 0."""
    requests = []
    monkeypatch.setattr(profiles, "profile_request", lambda request, *_, **__: requests.append(
        request) or SimpleNamespace(latency=True, warnings=()))  # fmt: skip
    past = {"input.1": torch.ones(2, 3), "past.0.key": torch.ones(1, 4, 0, 8)}
    tg.profile("m.onnx", past)
    wide = np.ones((2, 3), np.uint16)
    assert profiles._tensors(torch.from_numpy(wide)).args[0].dtype == wide.dtype
    tg.profile("m.onnx", (np.ones(()), torch.tensor(1), wide))
    assert [[(spec.name, spec.shape) for spec in request.inputs] for request in requests] == [
        [("input.1", (2, 3)), ("past.0.key", (1, 4, 0, 8))],
        [(None, ()), (None, ()), (None, (2, 3))],
    ]
    assert all(request.own_inputs for request in requests)
