"""A copy with values of a model that has shapes alone."""

import torch
from torch import nn

from torchgauge.targets.inputs.concrete_values import with_values
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.target import Target


class Tied(nn.Module):
    """Two layers that share a weight, buffers, and a tensor that is neither."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.steps = {"mask": torch.ones(3, dtype=torch.bool)}


def target(model, *args, **kwargs):
    inputs = Inputs(args=args, kwargs=kwargs)
    return Target(model=model, inputs=inputs, spec="", kind="module", name="")


def on_meta(make):
    with torch.device("meta"):
        return make()


def test_every_tensor_has_values_and_what_was_one_tensor_still_is():
    model = on_meta(Tied)
    copied = with_values(target(model)).model
    tensors = [*copied.parameters(), *copied.buffers(), copied.steps["mask"]]
    assert all(one.device.type == "cpu" and one.isfinite().all() for one in tensors)
    assert copied.out.weight is copied.table.weight
    assert copied.out.weight.std() > 0.1  # as a new linear layer has it
    assert copied.norm.running_var.eq(1).all()
    assert copied.norm.weight.eq(1).all()
    assert not copied.scale.requires_grad
    assert copied.scale.std() > 0
    assert copied.steps["mask"].all()
    assert all(one.is_meta for one in [*model.parameters(), *model.buffers(), model.steps["mask"]])


def test_values_that_are_there_stay_and_the_random_ones_repeat():
    model = nn.Sequential(nn.Conv1d(2, 2, 1), on_meta(lambda: nn.Linear(3, 3)))
    kept = model[0].weight.detach().clone()
    first, second = (with_values(target(model)).model for _ in range(2))
    assert torch.equal(first[0].weight, kept)
    assert torch.equal(first[1].weight, second[1].weight)


def test_inputs():
    given = torch.arange(3)
    empty = on_meta(lambda: (torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.int64)))
    inputs = with_values(target(torch.add, *empty, given, attention_mask=empty[1].clone())).inputs
    assert inputs.args[0].std() > 0
    assert inputs.args[1].eq(0).all()
    assert inputs.args[2] is given
    assert inputs.kwargs["attention_mask"].eq(1).all()


def test_a_bound_method_is_one_of_the_copy():
    model = on_meta(lambda: nn.Linear(3, 2))
    method = with_values(target(model.forward)).model
    assert method.__self__ is not model
    assert method(torch.ones(1, 3)).shape == (1, 2)


def test_the_random_numbers_of_the_process_stay():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    with_values(target(on_meta(Tied)))
    assert torch.equal(torch.rand(1), expected)
