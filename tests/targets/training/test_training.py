"""A training step: what it does, in which order, and what it says when it cannot."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.training.training import Training, TrainingStep


def sgd(params):
    return torch.optim.SGD(params, lr=0.5)


def test_none_and_false_mean_inference_and_a_training_stays_itself():
    assert Training.resolve(None) is None
    assert Training.resolve(False) is None
    how = Training(loss=lambda out, x: out.sum(), optimizer=sgd)
    assert Training.resolve(how) is how


def test_one_step_by_hand():
    # y = w·x with w = 2, x = 3; loss = y² = 36, dloss/dw = 2·y·x = 36, w' = 2 − 0.5·36 = −16
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    seen = []
    how = Training(loss=lambda out, x: out.square().sum(), optimizer=sgd)
    step = TrainingStep(model, Inputs.of(torch.tensor([[3.0]])), how)
    outputs = step(lambda phase: seen.append((phase, model.weight.grad is not None)))
    assert outputs.item() == 6.0
    assert model.weight.grad.item() == 36.0
    assert model.weight.item() == -16.0
    assert seen == [
        ("zero_grad", False),
        ("forward", False),
        ("loss", False),
        ("backward", False),
        ("optimizer", True),
        ("end", True),
    ]


def test_gradients_do_not_accumulate_over_steps():
    model = nn.Linear(1, 1, bias=False)
    how = Training(loss=lambda out, x: out.sum(), optimizer=sgd)
    step = TrainingStep(model, Inputs.of(torch.tensor([[3.0]])), how)
    step(), step()
    assert model.weight.grad.item() == 3.0


def test_the_scaler_scales_the_loss_and_the_callers_own_is_not_touched():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    how = Training(loss=lambda out, x: out.sum(), optimizer=sgd, scaler=scaler)
    step = TrainingStep(model, Inputs.of(torch.tensor([[3.0]])), how)
    at_optimizer = []
    step(lambda p: p == "optimizer" and at_optimizer.append(model.weight.grad.item()))
    assert at_optimizer == [3.0 * 1024]
    assert model.weight.item() == 2.0 - 0.5 * 3.0
    assert step.scaler.get_scale() == 2048.0
    assert scaler.get_scale() == 1024.0


def test_the_context_of_forward_and_loss_is_entered_anew_in_each_step():
    seen = []

    @contextlib.contextmanager
    def context():
        seen.append("enter")
        yield
        seen.append("leave")

    how = Training(loss=lambda out, x: out.sum(), optimizer=sgd)
    step = TrainingStep(nn.Linear(1, 1), Inputs.of(torch.ones(1, 1)), how, context)
    step(seen.append), step(seen.append)
    assert seen == 2 * [
        "zero_grad",
        "forward",
        "enter",
        "loss",
        "leave",
        "backward",
        "optimizer",
        "end",
    ]


@dataclasses.dataclass
class Output:
    loss: torch.Tensor | None


class Own(nn.Module):
    def __init__(self, wrap) -> None:
        super().__init__()
        self.linear, self.wrap = nn.Linear(2, 1), wrap

    def forward(self, x):
        return self.wrap(self.linear(x).sum())


@pytest.mark.parametrize("wrap", [Output, lambda loss: {"loss": loss}])
def test_true_takes_the_models_own_loss_and_adamw(wrap):
    model = Own(wrap)
    step = TrainingStep(model, Inputs.of(torch.ones(1, 2)), Training.resolve(True))
    step()
    assert type(step.optimizer) is torch.optim.AdamW
    assert model.linear.weight.grad.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("wrap", [lambda loss: loss, lambda _: Output(None), lambda _: {}])
def test_true_without_a_loss_shows_how_to_give_one(wrap):
    step = TrainingStep(Own(wrap), Inputs.of(torch.ones(1, 2)), Training.resolve(True))
    with pytest.raises(InputError) as error:
        step()
    assert error.value.id == "training-missing"
    assert "tg.Training(" in error.value.remedy


@pytest.mark.parametrize(
    ("loss", "says", "remedy"),
    [
        (lambda out, x: out, "(1, 2)", "a number"),
        (lambda out, x: out.detach().sum(), "does not depend", "create_graph=True"),
        (lambda out, x: 3.0, "float", "a number"),
    ],
)
def test_a_loss_that_cannot_be_differentiated_is_named(loss, says, remedy):
    how = Training(loss=loss, optimizer=sgd)
    with pytest.raises(InputError, match="differentiated") as error:
        TrainingStep(nn.Linear(2, 2), Inputs.of(torch.ones(1, 2)), how)()
    assert error.value.id == "loss-not-scalar"
    assert says in error.value.cause
    assert remedy in error.value.remedy


def test_what_cannot_be_trained_is_refused():
    how = Training(loss=lambda out, x: out.sum(), optimizer=sgd)
    with pytest.raises(InputError) as error:
        TrainingStep(lambda x: x, Inputs.of(torch.ones(1)), how)
    assert error.value.id == "training-needs-module"
    with pytest.raises(InputError) as error:
        TrainingStep(nn.Linear(2, 2).requires_grad_(False), Inputs.of(torch.ones(1, 2)), how)
    assert error.value.id == "nothing-to-train"
    with pytest.raises(InputError) as error:
        Training(loss=lambda out, x: out.sum(), optimizer=None)
    assert error.value.id == "training-missing"


def test_the_loss_gets_the_inputs_as_a_user_writes_them():
    x, y = torch.ones(1), torch.zeros(1)
    assert Inputs.of(x).as_given() is x
    assert Inputs.of((x, y)).as_given() == (x, y)
    assert Inputs.of({"a": x, "b": y}).as_given() == {"a": x, "b": y}
    mixed = Inputs((x,), {"b": y})
    assert mixed.as_given() is mixed


def test_inputs_that_another_model_made_keep_their_graph_and_get_no_gradient():
    before, model = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
    x, leaf = before(torch.ones(2, 3)), torch.ones(2, 4, requires_grad=True)
    for given in (x, leaf):
        step = TrainingStep(model, Inputs((given,)), Training(lambda out, _: out.sum(), sgd))
        step()
        step()
    assert (before.weight.grad, leaf.grad) == (None, None)
    x.sum().backward()
    assert before.weight.grad is not None
