"""Calls that a model's signature takes, and those that it does not."""

import functools

import pytest
import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.targets.inputs.batching import check_call, misfit, written
from torchgauge.targets.inputs.inputs import Inputs

ONE = torch.ones(1)
LINEAR = nn.Linear(4, 3)


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


class Worded(nn.Module):
    """A layer whose operator fails by other words than its types."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def forward(self, x):
        return torch._check(False, lambda: self.words)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (nn.Linear(4, 3), torch.ones(2, 5)),
        (own_words, ONE),
        (lambda x: [].shape, [1.0]),  # a list of the model's own
        (lambda x: x + torch.ones(3, device="meta"), torch.ones(3)),
        (Worded("Input type, scalar type, dtype of shape"), ONE),
        (lambda x: LINEAR(x.double()), torch.ones(1, 4)),  # a type of the model's own
    ],
)
def test_no_words_of_an_error_tell_what_inputs_lack(call, argument):
    assert misfit(call, Inputs.of(argument), raised(call, argument)) == ""


@pytest.mark.parametrize(
    ("call", "argument", "tells"),
    [
        (nn.Linear(4, 3), [1.0], "a list is one argument"),
        (lambda x: x.shape, [1.0], "a list is one argument"),
        (nn.Linear(4, 3), torch.ones(2, 4).double(), "they are float64 and its parameters float32"),
        (nn.Linear(4, 3), torch.ones(2, 4).long(), "they are int64 and its parameters float32"),
        (nn.Embedding(4, 3), ONE, "Convert the inputs"),
    ],
)
def test_a_remedy_for_inputs_where_an_operator_did_not_take_them(call, argument, tells):
    assert tells in misfit(call, Inputs.of(argument), raised(call, argument))
