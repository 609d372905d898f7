"""`.onnx` files as targets: counted without being run."""

from __future__ import annotations

import json

import pytest
from onnx import helper
from tests.support import onnx_files
from tests.support.onnx_files import FLOAT, INT, model, node, weight

from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.targets.loaders.load import load
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
