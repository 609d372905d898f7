"""A forward that asks for gradients of its inputs leaves no flag and no gradient on them."""

import pytest
import torch
from torch import nn

from torchgauge.measure.step import prepared
from torchgauge.targets import hygiene
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene.gradients import Gradients
from torchgauge.targets.inputs.inputs import Inputs


class Forces(nn.Module):
    """Marks its input, a buffer and a tensor of a list, and differentiates by them."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1)
        self.register_buffer("shift", torch.zeros(3))
        self.held = [torch.zeros(3)]
        self.seen = []

    def forward(self, x):
        tensors = (x, self.shift, self.held[0])
        self.seen.append([(tensor.requires_grad, tensor.grad) for tensor in tensors])
        with torch.enable_grad():
            for tensor in tensors:
                tensor.requires_grad_()
            self.net(sum(tensors)).sum().backward()
        return -x.grad


def state(model, x):
    tensors = (x, model.shift, model.held[0], *model.parameters())
    return [(tensor.requires_grad, tensor.grad) for tensor in tensors]


@pytest.mark.parametrize("mode", [hygiene.evaluation, hygiene.training])
def test_flags_and_gradients_are_put_back(mode):
    model, x = Forces(), torch.ones(2, 3)
    before = state(model, x)
    options = {"grad_mode": "no_grad"} if mode is hygiene.evaluation else {}
    with mode(model, Inputs.of(x), **options):
        model(x)
        assert x.requires_grad
        assert model.shift.grad is not None
    assert state(model, x) == before


def test_each_call_gets_an_input_without_the_last_one_s_gradient():
    model, x = Forces(), torch.ones(2, 3)
    seen = []
    model.register_forward_pre_hook(
        lambda _, args: seen.append((args[0].requires_grad, args[0].grad))
    )
    with prepared(Source.of_object(model.eval(), x).open()) as step:
        outputs = [step().clone() for _ in range(3)]
    assert seen[-3:] == [(False, None)] * 3
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert not x.requires_grad


def test_an_input_with_a_gradient_of_its_own_keeps_it():
    model, x = Forces(), torch.ones(2, 3, requires_grad=True)
    x.grad = gradient = torch.full((2, 3), 7.0)
    with hygiene.evaluation(model, Inputs.of(x), grad_mode="no_grad"):
        model(x)
    assert x.requires_grad
    assert x.grad is gradient


def test_what_a_write_made_part_of_a_graph_is_a_leaf_again():
    x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    before = Gradients([x])
    x.mul_(weight)
    assert before.differ()
    before.restore()
    assert not before.differ()
    assert x.is_leaf
    assert not x.requires_grad
