"""Gradients of torch.func in a forward: its work and memory, in inference and in training."""

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.measure.memory import memory
from torchgauge.targets.builds.source import Source
from torchgauge.version import TORCH_DERIVES_IN_INFERENCE, torch_release


class PerSample(nn.Module):
    """The gradients of every sample, by parameter."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 4)

    def forward(self, x):
        def loss(parameters, row):
            return torch.func.functional_call(self.net, parameters, (row,)).sum()

        of_row = torch.func.vmap(torch.func.grad(loss), (None, 0))
        return of_row(dict(self.net.named_parameters()), x)


class Physics(nn.Module):
    """A layer, and the gradients of its output: as a PINN, trained through both."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return torch.func.vmap(torch.func.grad(lambda v: self.layer(v).tanh().sum()))(
            x
        ) + self.layer(x)


def test_per_sample_gradients():
    model, x = PerSample().eval(), torch.randn(3, 6)
    cost = tg.count_cost(model, x)
    assert cost.macs == 3 * 6 * 4 + 3 * 6 * 4
    assert {cost.nodes[row.node].path for row in cost.rows if row.matmul_flops} == {"net"}
    parameters, inputs, gradients = 4 * (6 * 4 + 4), 4 * 3 * 6, 4 * 3 * 6 * 4
    # The bias's gradients are the losses' own, a number for each row, seen four times.
    measured = memory.measure(Source.of_object(model, x).open())
    assert measured.peak == parameters + inputs + gradients + 4 * 3 + 4 * 3
    derives = torch_release() >= TORCH_DERIVES_IN_INFERENCE  # before, it returns zeros there
    assert measured.grad_mode == ("inference_mode" if derives else "no_grad")


def test_training_through_a_functional_gradient():
    model, x = Physics(), torch.randn(7, 8)
    cost = tg.count_cost(model, x, backward=True)
    product = 7 * 8 * 8
    # Forward: the layer twice and its gradient. Backward: those of three weights, of what is
    # between two products, and of the first product's output.
    assert cost.macs == (3 + 4) * product
    train = tg.Training(lambda out, _: out.sum(), lambda p: torch.optim.SGD(p, lr=0.1))
    measured = tg.measure_memory(model, x, train=train)
    assert cost.retained_for_backward == measured.retained_for_backward > 0


def test_hooks_of_the_model_itself_fail_as_they_do_in_torch():
    class Hooked(Physics):
        def forward(self, x):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                return super().forward(x)

    with pytest.raises(tg.TorchgaugeError, match="saved tensor hooks"):
        tg.count_cost(Hooked(), torch.randn(7, 8), backward=True)


@pytest.mark.thorough
@pytest.mark.parametrize("train", [False, True])
def test_a_profile_of_them_is_complete(train):
    step = tg.Training(lambda out, _: out.sum(), lambda p: torch.optim.SGD(p, lr=0.1))
    profile = tg.profile(
        Physics(), torch.randn(7, 8), train=step if train else None, effort="quick", roofs=False
    )
    assert profile.complete
    assert profile.cost.macs == (7 if train else 3) * 7 * 8 * 8
    assert profile.tree.root.flops == profile.cost.flops
    assert profile.tree.find("layer").peak is not None
