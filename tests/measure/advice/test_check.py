"""Whether a change keeps the output, in this process: models that are hard to compare."""

import math
import shutil

import pytest
import torch
from torch import nn

from torchgauge.errors import MeasurementError
from torchgauge.measure.advice.check import CheckSource, check
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.processes import ask
from torchgauge.targets.builds.source import Source

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
    answer, _ = ask("check", of, LatencyOptions())
    assert answer.checked.output.passed, answer.checked.output.reason


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
