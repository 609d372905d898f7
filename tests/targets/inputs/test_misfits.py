"""Calls that a model's signature takes, and those that it does not."""

import functools

import numpy as np
import pytest
import torch
from torch import nn

from torchgauge.errors import InputError, same_call
from torchgauge.targets.inputs.batching import check_call, misfit, written
from torchgauge.targets.inputs.inputs import Inputs

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


def raised(call, *arguments):
    with pytest.raises(BaseException) as caught:
        call(*arguments)
    return caught.value


def own_words(_):
    raise ValueError("a size of the model's own, no shape of the inputs")


@pytest.mark.parametrize(
    ("call", "argument", "blamed"),
    [
        (nn.Linear(4, 3), torch.ones(2, 5), True),
        (nn.Conv2d(3, 8, 3), torch.ones(2, 4, 8, 8), True),
        (nn.BatchNorm2d(3), torch.ones(2, 3), True),  # which torch raises in Python
        (lambda x: x + torch.ones(3), ONE.expand(4), True),
        (lambda x: x @ np.ones((3, 2)), np.ones((2, 4)), True),
        (lambda x: x.item(), torch.ones(1, device="meta"), False),
        (lambda x: x + torch.ones(3, device="meta"), torch.ones(3), False),
        (own_words, ONE, False),
        (lambda x: {}["size"], ONE, False),
    ],
)
def test_inputs_are_blamed_where_an_operator_was_given_shapes_that_do_not_fit(
    call, argument, blamed
):
    assert ("may not fit" in same_call(raised(call, argument))) == blamed


def test_an_error_that_was_never_raised_blames_nothing():
    assert "may not fit" not in same_call(RuntimeError("size"))


@pytest.mark.parametrize(
    ("call", "argument", "tells"),
    [
        (nn.Linear(4, 3), [1.0], "a list is one argument"),
        (lambda x: x.shape, [1.0], "a list is one argument"),
        (lambda x: [].shape, [1.0], "traceback"),  # a list of the model's own
        (own_words, [1.0], "traceback"),
        (nn.Embedding(4, 3), ONE, "Convert the inputs"),
    ],
)
def test_a_remedy_for_inputs_where_an_operator_did_not_take_them(call, argument, tells):
    error = raised(call, argument)
    assert tells in (misfit(call, Inputs.of(argument), error) or same_call())
