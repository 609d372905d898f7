"""Calls that a model's signature takes, and those that it does not."""

import functools

import pytest
import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.misfits import check_call, written

ONE = torch.ones(1)


class Net(nn.Module):
    def forward(self, x, mask=None):
        return x


def renaming(forward):
    """A decorator that takes other arguments than what it wraps."""

    @functools.wraps(forward)
    def call(self, image):
        return forward(self, image)

    return call


class Renamed(nn.Module):
    @renaming
    def forward(self, x):
        return x


def hooked():
    model = Net()
    model.register_forward_pre_hook(
        lambda module, args, kwargs: ((kwargs.pop("image"),), kwargs), with_kwargs=True
    )
    return model


class OwnCall(nn.Module):
    def forward(self, x):
        return x

    def __call__(self, image):
        return super().__call__(image)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Net(), (ONE,)),
        (Net(), {"x": ONE, "mask": ONE}),
        (Renamed(), {"image": ONE}),
        (hooked(), {"image": ONE}),
        (OwnCall(), {"image": ONE}),
        (torch.relu, (ONE, ONE, ONE)),  # nobody knows what it takes
        (torch.jit.script(nn.Linear(1, 1)), {"anything": ONE}),
        (lambda *anything, **more: None, {"a": ONE}),
    ],
)
def test_calls_that_may_fit_are_not_refused(model, inputs):
    check_call(model, Inputs.of(inputs))


@pytest.mark.parametrize(
    ("model", "inputs", "id", "tells"),
    [
        (Net(), None, "input-missing", "forward(x, mask=None)"),
        (Net(), {"y": ONE}, "inputs-unfit", "forward(x, mask=None)"),
        (Net(), (ONE, ONE, ONE), "inputs-unfit", "forward(x, mask=None)"),
        (Net().forward, {"maks": ONE, "x": ONE}, "inputs-unfit", "mask"),
        (Renamed(), {"x": ONE}, "inputs-unfit", "image"),
        (lambda a: None, None, "input-missing", "(a)"),
    ],
)
def test_calls_that_cannot_be_are_refused(model, inputs, id, tells):
    with pytest.raises(InputError) as caught:
        check_call(model, Inputs.of(inputs))
    assert caught.value.id == id
    assert tells in f"{caught.value.message} {caught.value.cause} {caught.value.remedy}"
    assert caught.value.remedy


def test_a_signature_is_written_without_annotations_and_not_for_ever():
    def typed(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x

    assert written(typed) == "typed(x, *, scale=1.0)"
    many = "lambda " + ", ".join(f"argument{number}=None" for number in range(30)) + ": None"
    assert "=None" not in written(eval(many))
    assert "argument29" in written(eval(many))
