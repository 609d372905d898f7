"""Recorded calls of operators, replayed: real recordings of this process."""

import json

import pytest
import torch
from tests.support.kineto_events import kernel, launch, op
from torch.nn import functional

import torchgauge as tg
from torchgauge.cli.main import main

X = torch.ones(8, 16)
TINY = {"budget": 0.02, "progress": False}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Many operators, each with its own kinds of arguments."""
    path = tmp_path_factory.mktemp("replay") / "trace.json"
    with torch.profiler.profile(record_shapes=True) as profiler:
        torch.mm(X, X.t())
        torch.mm(X[:4], X.t())
        X.t() + X.t()
        X + 2
        functional.layer_norm(X, (16,))
        functional.gelu(X)
        functional.embedding(torch.tensor([0, 7, 3]), X)
        torch.cat([X, X])
        X.sum(1)
        X.to(torch.bfloat16)
        functional.conv2d(torch.ones(1, 2, 8, 8), torch.ones(3, 2, 3, 3), padding=1)
        torch.mul(X, X, out=torch.empty(8, 16))
        X.clone().relu_()
    profiler.export_chrome_trace(str(path))
    return path


@pytest.mark.parametrize(
    ("operator", "overload"),
    [
        ("aten::mm", "aten.mm.default"),
        ("aten::add", "aten.add.Tensor"),
        ("aten::native_layer_norm", "aten.native_layer_norm.default"),
        ("aten::gelu", "aten.gelu.default"),
        ("aten::embedding", "aten.embedding.default"),
        ("aten::sum", "aten.sum.dim_IntList"),
        ("aten::_to_copy", "aten._to_copy.default"),
        ("aten::convolution", "aten.convolution.default"),
        ("aten::mul", "aten.mul.out"),
        ("aten::relu_", "aten.relu_.default"),
        ("aten::conv2d", "aten.conv2d.default"),
    ],
)
def test_an_operator_runs_again_with_its_recorded_arguments(file, operator, overload):
    replay = tg.replay_operator(file, operator, **TINY)
    assert replay.overload == overload
    assert replay.latency.median > 0
    assert replay.call.host > 0
    assert replay.on == "CPU"


def test_tensors_have_the_recorded_sizes_types_and_strides(file, monkeypatch):
    from torchgauge.measure.latency import operator_replay

    made = []
    build = operator_replay._tensor
    monkeypatch.setattr(
        operator_replay, "_tensor", lambda *args: made.append(build(*args)) or made[-1]
    )
    tg.replay_operator(file, "aten::add", **TINY)
    assert [(tuple(one.shape), one.stride(), one.dtype) for one in made] == [
        ((16, 8), (1, 16), torch.float32)
    ] * 2


def test_calls_are_numbered_as_they_began(file):
    calls = [tg.replay_operator(file, f"aten::mm#{number}", **TINY).call for number in (1, 2)]
    assert [call.dims[0] for call in calls] == [(8, 16), (4, 16)]
    assert [call.number for call in calls] == [1, 2]
    assert calls[0].calls == 2


@pytest.mark.parametrize(
    ("operator", "id"),
    [
        ("aten::mm#3", "call-unknown"),
        ("aten::mn", "operator-unknown"),
        ("__import__('os')", "operator-unknown"),
        ("aten::cat", "operator-not-replayable"),  # no types of a list
    ],
)
def test_what_cannot_be_replayed_is_an_error(file, operator, id):
    with pytest.raises(tg.InputError) as caught:
        tg.replay_operator(file, operator, **TINY)
    assert caught.value.id == id
    assert caught.value.remedy


def written(tmp_path, *events):
    path = tmp_path / "made.json"
    path.write_text(json.dumps({"traceEvents": list(events)}))
    return path


FLOATS = {"Input type": ["float", "float"], "Concrete Inputs": ["", ""]}


@pytest.mark.parametrize(
    ("name", "arguments", "id"),
    [
        ("aten::mm", {}, "inputs-absent"),
        # Sizes that do not fit each other, that are no sizes, and that no memory holds.
        ("aten::mm", {"Input Dims": [[4, 5], [6, 7]], **FLOATS}, "operator-not-replayable"),
        ("aten::mm", {"Input Dims": [[-4, 5], [5, 7]], **FLOATS}, "operator-not-replayable"),
        ("aten::mm", {"Input Dims": [[10**9, 10**9]] * 2, **FLOATS}, "operator-too-large"),
        (
            "aten::mm",
            {"Input Dims": [[2, 2]] * 2, "Input Strides": [[10**15, 1]] * 2, **FLOATS},
            "operator-too-large",
        ),
        # What is no operator of torch never runs, whatever it is called.
        ("os::system", {"Input Dims": [[2, 2]] * 2, **FLOATS}, "operator-not-replayable"),
        ("aten::__class__", {"Input Dims": [[2, 2]] * 2, **FLOATS}, "operator-not-replayable"),
        ("aten::mm", {"Input Dims": [[2, 2]], **FLOATS}, "operator-not-replayable"),
    ],
)
def test_what_a_hostile_file_says_is_an_error(tmp_path, name, arguments, id):
    path = written(tmp_path, op(name, 0, 10, **arguments))
    with pytest.raises(tg.InputError) as caught:
        tg.replay_operator(path, name, **TINY)
    assert caught.value.id == id


def test_device_time_is_that_of_the_work_it_launched(tmp_path):
    path = written(
        tmp_path,
        op("aten::mm", 0, 10, **{"Input Dims": [[2, 2]] * 2, **FLOATS}),
        launch(1, 2),
        launch(2, 6),
        launch(3, 20),
        kernel("gemm", 30, 5, 1),
        kernel("reduce", 40, 2, 2),
        kernel("other", 50, 9, 3),
    )
    replay = tg.replay_operator(path, "aten::mm#1", device="cpu", **TINY)
    assert replay.call.device == pytest.approx(7e-6)
    assert replay.call.host == pytest.approx(10e-6)


def test_the_command_shows_both_times(file, capsys, monkeypatch):
    from torchgauge.traces import operator_replay

    monkeypatch.setattr(operator_replay, "BUDGET", 0.02)
    assert main(["trace", str(file), "--replay", "aten::mm#2"]) == 0
    out = capsys.readouterr().out
    assert "aten::mm#2  of 2 calls" in out
    assert "recorded on a CPU" in out
    assert "measured on CPU" in out
    assert "float 4×16" in out
    assert main(["trace", str(file), "--replay", "aten::mm#9"]) == 2
    assert "call-unknown" in capsys.readouterr().err
    assert main(["trace", str(file), "--device", "cpu"]) == 2
    assert "option-conflict" in capsys.readouterr().err
