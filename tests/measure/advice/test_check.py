"""Whether a change keeps the output, in this process: models that are hard to compare."""

import math
import shutil

import msgspec
import onnx
import pytest
import torch
from tests.support import onnx_files
from torch import nn

from torchgauge.errors import MeasurementError, ModelError
from torchgauge.measure.advice.check import CheckResult, CheckSource, check, check_sent
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.processes import ask
from torchgauge.readers.onnx import onnx_file
from torchgauge.readers.onnx.onnx_file import answered
from torchgauge.records.finding import Answer
from torchgauge.records.onnx.graph import Graph
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import TargetRequest

BROKEN = "model.fc.forward = lambda x: x * 0 - 7"
NOTHING = "model.eval()"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("out", torch.zeros(2, 4))
        self.calls = 0


class Buffered(Net):
    """Returns a buffer of its own, which each call fills again."""

    def forward(self, x):
        return self.out.copy_(self.fc(x))


class InPlace(Net):
    def forward(self, x):
        return x.copy_(self.fc(x))


class Random(Net):
    def forward(self, x):
        return nn.functional.dropout(self.fc(x), 0.5, training=True)


class Counting(Net):
    def forward(self, x):
        self.calls += 1
        return self.fc(x) + self.calls


@pytest.mark.slow
def test_a_compiled_model_draws_what_the_original_draws():
    """Else no training step with dropout could be compiled; a compiler of C++ is needed."""
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("no C++ compiler is installed")
    source = Source.of_object(Random(), torch.ones(2, 4))
    of = CheckSource(source.target, code=("model = torch.compile(model)",))
    result, _ = ask(check_sent, CheckResult, of, LatencyOptions())
    assert result.output.passed, result.output.reason


def test_chance_is_noticed_and_handed_to_a_compiled_model_alone(monkeypatch):
    told = []
    monkeypatch.setattr("torchgauge.measure.advice.check.draw_as_eager", lambda: told.append(1))
    for kind, code in ((Random, NOTHING), (Net, "torch.compile"), (Random, "torch.compile")):
        assert not told
        model = kind() if kind is Random else nn.Linear(4, 4)
        assert checked(model, code).passed
    assert told == [1]


def checked(model, code, metric=None):
    source = Source.of_object(model, torch.ones(2, 4))
    of = CheckSource(source.target, code=(code,), metric=metric)
    return check(of, source.open(), LatencyOptions()).output


@pytest.mark.parametrize("kind", [Buffered, InPlace, Random, Counting])
def test_state_and_chance_are_alike_on_both_sides_and_hide_nothing(kind):
    torch.manual_seed(0)
    assert checked(kind(), NOTHING).passed
    assert not checked(kind(), BROKEN).passed


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (lambda _: math.nan, "gives nan"),
        (lambda _: math.inf, "gives inf"),
        (lambda _: 1 / 0, "raised ZeroDivisionError"),
        (lambda _: None, "raised TypeError"),
    ],
)
def test_a_metric_that_is_no_number_is_said(metric, said):
    with pytest.raises(MeasurementError) as caught:
        checked(nn.Linear(4, 4), NOTHING, metric)
    assert caught.value.id == "metric-raised"
    assert said in caught.value.message


def test_a_metric_of_a_buffer_is_of_the_outputs_as_they_were():
    found = checked(Buffered(), BROKEN, lambda outputs: outputs.mean())
    assert found.metric_before != found.metric_after == -7
    assert not found.passed


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """Write x + x for one type of elements; it is read here, which starts no process."""

    def ask(_path, question):
        return msgspec.msgpack.decode(answered(question), type=Answer[Graph])

    monkeypatch.setattr(onnx_file, "_ask", ask)
    return lambda kind: _exported(tmp_path / "other.onnx", kind)


def _exported(path, kind: str) -> TargetRequest:
    number = getattr(onnx.TensorProto, kind.upper())
    content = onnx_files.model(
        [onnx_files.node("Add", ["x", "x"], ["y"])],
        [onnx.helper.make_tensor("w", number, [10], [0] * 10)],
        x=(2, 4),
    )
    for value in (content.graph.input[0], content.graph.output[0]):
        value.type.tensor_type.elem_type = number
    onnx.save(content, path)
    return TargetRequest(str(path))


@pytest.mark.parametrize(
    ("x", "kind", "bound"),
    [
        (torch.full((2, 4), 1 / 3), "float16", 1e-2),
        (torch.full((2, 4), 1 / 3).half(), "float", 1e-2),
        (torch.full((2, 4), 5), "int32", 1e-3),
    ],
)
def test_a_file_gets_the_inputs_in_its_own_types(exported, x, kind, bound):
    other = Source.of_request(exported(kind))
    source = Source.of_object(lambda x: x + x, x)
    result = check(CheckSource(source.target, other=other), source.open(), LatencyOptions()).output
    assert (result.passed, result.bound) == (True, bound), result.reason


def test_whole_numbers_that_a_type_does_not_hold_are_not_changed(exported):
    other = Source.of_request(exported("int32"))
    source = Source.of_object(lambda x: x + x, torch.full((2, 4), 2**40))
    with pytest.raises(ModelError, match="raised"):
        check(CheckSource(source.target, other=other), source.open(), LatencyOptions())
