"""Runtimes of ONNX files: what they return, and errors for what is missing or does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.support import onnx_files

from torchgauge.errors import InputError
from torchgauge.targets.quantization import Variant
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions, check_in_runtime, is_onnx
from torchgauge.targets.target import TargetRequest

X = torch.arange(192.0).reshape(1, 3, 8, 8) / 192


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    onnx.save(onnx_files.convolutional(), path)
    return path


def truth(path: Path) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    result: np.ndarray = ReferenceEvaluator(str(path)).run(None, {"x": X.numpy()})[0]
    return result


def doubling(folder: Path, name: str) -> Path:
    """Write a model of 2·x in float32, with x and y, and a second result in float32."""
    node, kind = onnx_files.node, getattr(onnx.TensorProto, name.upper())
    content = onnx_files.model(
        [
            node("Cast", ["x"], ["a"], to=onnx_files.FLOAT),
            node("Add", ["a", "a"], ["b"]),
            node("Cast", ["b"], ["y"], to=kind),
        ],
        x=(2, 3),
    )
    content.graph.output.append(onnx.helper.make_tensor_value_info("b", onnx_files.FLOAT, [2, 3]))
    for value in (content.graph.input[0], content.graph.output[0]):
        value.type.tensor_type.elem_type = kind
    onnx.save(content, folder / "doubling.onnx")
    return folder / "doubling.onnx"


def assert_doubled(model, dtype: torch.dtype) -> None:
    x = torch.tensor([[1.5, -2.0], [3.25, 0.0], [5.0, 7.5]], dtype=dtype).T  # not contiguous
    first, second = model(x)
    assert torch.equal(first, 2 * x)
    assert torch.equal(second, 2 * x.float())


class TestOptions:
    @pytest.mark.parametrize(
        ("fields", "id"),
        [
            ({"runtime": "tensorrt"}, "runtime-unknown"),
            ({"optimization": "most"}, "optimization-unknown"),
            ({"runtime": "openvino", "optimization": "all"}, "option-conflict"),
            ({"runtime": "openvino", "custom_ops": (Path("a.so"),)}, "option-conflict"),
        ],
    )
    def test_what_does_not_exist_is_refused(self, fields, id):
        with pytest.raises(InputError) as raised:
            RuntimeOptions(**fields)
        assert raised.value.id == id

    @pytest.mark.parametrize(
        ("fields", "id"),
        [
            ({"device": "cuda"}, "option-conflict"),
            ({"training": True}, "option-conflict"),
            ({"precision": "bf16"}, "option-conflict"),
            ({"runtime": RuntimeOptions(custom_ops=(Path("a.so"),))}, "untrusted-file"),
        ],
    )
    def test_what_an_onnx_file_does_not_take_is_refused(self, fields, id):
        with pytest.raises(InputError) as raised:
            TargetRequest("a.onnx", **fields)
        assert raised.value.id == id

    @pytest.mark.parametrize(
        "options", [{"runtime": "openvino"}, {"provider": "cuda"}, {"optimization": "off"}]
    )
    def test_options_of_runtimes_are_refused_where_no_target_has_one(self, options):
        check_in_runtime(RuntimeOptions(), "model.py:make")
        for specs in (("a.onnx",), ("a.pte",), ("model.py:make", "a.onnx")):
            check_in_runtime(RuntimeOptions(**options), *specs)
        with pytest.raises(InputError) as raised:
            check_in_runtime(RuntimeOptions(**options), "model.py:make", "other.py:make")
        assert raised.value.id == "runtime-unsupported"

    def test_it_runs_in_a_process_of_its_own_on_the_host(self):
        assert TargetRequest("a.ONNX", device="auto").device == "cpu"
        assert TargetRequest("a.onnx").in_own_process
        assert not TargetRequest("a.onnx", device="meta").in_own_process
        assert not TargetRequest("a.py:make").in_own_process
        assert is_onnx("folder/A.ONNX")
        assert not is_onnx("folder/onnx.py:make")


class TestOnnxRuntime:
    def test_outputs_are_tensors_of_the_right_values(self, path):
        session = OnnxSession(path, RuntimeOptions())
        for outputs in (session(X), session(x=X)):
            assert torch.allclose(outputs[0], torch.from_numpy(truth(path)), rtol=1e-4)

    @pytest.mark.parametrize(
        ("provider", "id"), [("cdua", "provider-unknown"), ("cuda", "provider-missing")]
    )
    def test_a_provider_that_is_not_there_is_an_error(self, path, provider, id):
        with pytest.raises(InputError) as raised:
            OnnxSession(path, RuntimeOptions(provider=provider))
        assert raised.value.id == id

    def test_a_silent_fallback_is_an_error(self, path, monkeypatch):
        import onnxruntime

        class Fallen(onnxruntime.InferenceSession):  # type: ignore[misc]
            def get_providers(self) -> list[str]:
                return ["CPUExecutionProvider"]

        monkeypatch.setattr(onnxruntime, "InferenceSession", Fallen)
        with pytest.raises(InputError) as raised:
            OnnxSession(path, RuntimeOptions(provider="azure"))
        assert raised.value.id == "provider-fell-back"

    @pytest.mark.parametrize("name", ["float16", "bfloat16"])
    def test_floats_of_two_bytes_go_in_and_come_out(self, tmp_path, name):
        session = OnnxSession(doubling(tmp_path, name), RuntimeOptions())
        assert_doubled(session, getattr(torch, name))

    def test_lists_are_sequences(self, tmp_path):
        kind = onnx.helper.make_tensor_type_proto(onnx_files.FLOAT, [1, 3, 8, 8])
        content = onnx_files.model([onnx_files.node("ConcatFromSequence", ["s"], ["y"], axis=0)])
        kind = onnx.helper.make_sequence_type_proto(kind)
        content.graph.input[0].CopyFrom(onnx.helper.make_value_info("s", kind))
        onnx.save(content, tmp_path / "list.onnx")
        session = OnnxSession(tmp_path / "list.onnx", RuntimeOptions())
        assert torch.equal(session([X, X.numpy()])[0], torch.cat([X, X]))

    def test_too_many_inputs_are_named(self, path):
        with pytest.raises(InputError) as raised:
            OnnxSession(path, RuntimeOptions())(X, X)
        assert raised.value.id == "inputs-unfit"

    def test_a_damaged_file_is_an_error(self, tmp_path):
        (tmp_path / "bad.onnx").write_bytes(b"\x08\x07nothing")
        with pytest.raises(InputError) as raised:
            OnnxSession(tmp_path / "bad.onnx", RuntimeOptions())
        assert raised.value.id == "model-not-opened"

    def test_settings_have_the_names_of_onnx_runtime(self, path):
        session = OnnxSession(path, RuntimeOptions(optimization="basic"))
        changed = session.reopen(graph_optimization_level="ORT_DISABLE_ALL", intra_op_num_threads=1)
        options = changed._session.get_session_options()
        assert options.intra_op_num_threads == 1
        assert options.graph_optimization_level.name == "ORT_DISABLE_ALL"
        assert torch.allclose(changed(X)[0], session(X)[0], rtol=1e-4)

    def test_a_sweep_s_cell_has_its_level_and_its_threads(self, path):
        request = TargetRequest(str(path))
        variant = Variant(request, optimization="off", threads=1, interop=2)
        model = variant.open().model
        assert isinstance(model, OnnxSession)
        assert model.settings["graph_optimization_level"] == "ORT_DISABLE_ALL"
        assert model.settings["inter_op_num_threads"] == 2

    @pytest.mark.parametrize("fields", [{"compile": "default"}, {"channels_last": True}])
    def test_a_cell_that_torch_would_change_is_unsupported(self, path, fields):
        with pytest.raises(InputError) as raised:
            Variant(TargetRequest(str(path)), **fields).open()
        assert raised.value.id == "runtime-unsupported"


@pytest.mark.thorough
@onnx_files.needs_openvino
class TestOpenVino:
    def test_it_returns_the_same_and_counts_its_nodes(self, path):
        from torchgauge.targets.runtimes.openvino_model import OpenVinoModel

        model = OpenVinoModel(path, RuntimeOptions("openvino")).counting()
        assert torch.allclose(model(X)[0], torch.from_numpy(truth(path)), rtol=1e-4)
        counters = {counter.name: counter for counter in model.counters()}
        fused = [counter for counter in counters.values() if "r" in counter.origins]
        assert fused, "the ReLU became part of a convolution"
        assert any(counter.seconds is not None for counter in counters.values())

    @pytest.mark.parametrize("name", ["float16", "bfloat16"])
    def test_floats_of_two_bytes_go_in_and_come_out(self, tmp_path, name):
        from torchgauge.targets.runtimes.openvino_model import OpenVinoModel

        model = OpenVinoModel(doubling(tmp_path, name), RuntimeOptions("openvino"))
        assert_doubled(model, getattr(torch, name))

    def test_a_device_that_is_not_there_is_an_error(self, path):
        from torchgauge.targets.runtimes.openvino_model import OpenVinoModel

        with pytest.raises(InputError) as raised:
            OpenVinoModel(path, RuntimeOptions("openvino", provider="npu"))
        assert raised.value.id == "provider-missing"


CTRL_C = """
import os, signal, sys
from pathlib import Path
from torchgauge.targets.runtimes.openvino_model import OpenVinoModel
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions
model = OpenVinoModel(Path(sys.argv[1]), RuntimeOptions("openvino")).counting()
del model
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.thorough
@onnx_files.needs_openvino
def test_ctrl_c_after_openvino_is_one(path):
    done = subprocess.run([sys.executable, "-c", CTRL_C, path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


SILENT = """
import sys, threading
from torchgauge.targets.runtimes.openvino_model import import_openvino
assert import_openvino().__version__
assert "openvino_telemetry" not in sys.modules
assert threading.active_count() == 1, threading.enumerate()
assert not list(__import__("pathlib").Path.home().iterdir())
"""


@pytest.mark.thorough
@onnx_files.needs_openvino
def test_openvino_reports_to_nobody(tmp_path):
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SILENT], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
