"""Faults of sizes, peaks and hygiene that people reported in public, each with its own model."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

import torchgauge as tg

pytestmark = pytest.mark.thorough

X = torch.randn(4, 8)
BYTES = 4


def training(model, inputs):
    """Return the memory of a step with a sum as the loss and plain SGD."""

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    return tg.measure_memory(model, inputs, train=tg.Training(lambda out, _: out.sum(), sgd))


def test_tied_weights_are_counted_once():
    """torchinfo#377."""
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50, bias=False))
    model[1].weight = model[0].weight
    assert tg.measure_size(model).parameters == 400


def test_a_module_of_two_parents_is_counted_once():
    """torchinfo#322: YOLO's layers were counted up to 2.37 times."""
    layer = nn.Linear(10, 10)
    assert tg.measure_size(nn.Sequential(layer, nn.Sequential(layer))).parameters == 110


def test_parameters_that_the_forward_does_not_use_are_counted():
    """PCARN-pytorch#1."""
    model = nn.ModuleDict({"used": nn.Linear(8, 4), "unused": nn.Linear(8, 4)})
    model.forward = lambda x: model["used"](x)
    assert tg.measure_size(model).parameters == 72
    assert tg.count_cost(model, X).macs == 4 * 8 * 4


def test_plain_parameters_of_a_module_are_counted():
    """pytorch-OpCounter#197: what is an nn.Parameter of one's own was 0."""

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(8))

        def forward(self, x):
            return x * self.factor

    assert tg.measure_size(Scale()).parameters == 8


def test_the_peak_on_a_cpu_is_not_0():
    """nanochat#839; by hand: parameters, input, and the two outputs that live at once."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    memory = tg.measure_memory(model.eval(), X)
    assert memory.peak == BYTES * (8 * 16 + 16 + 4 * 8 + 2 * 4 * 16)


def test_no_part_of_the_memory_is_negative():
    """pytorch#70028; and the parts add up."""
    memory = training(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), X)
    assert min(memory.parts.values()) >= 0
    assert sum(memory.parts.values()) == memory.peak


def test_one_checkpointed_segment_saves_nothing_and_four_do():
    """deeplearning-models#74: a checkpoint around the whole holds it all in the backward pass."""

    class Checkpointed(nn.Module):
        def __init__(self, segments):
            super().__init__()
            self.layers = nn.Sequential(
                *(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8))
            )
            self.segments = segments

        def forward(self, x):
            if not self.segments:
                return self.layers(x)
            return checkpoint_sequential(self.layers, self.segments, x, use_reentrant=False)

    x = torch.randn(512, 64, requires_grad=True)
    plain, one, four = (training(Checkpointed(n), x).peak for n in (0, 1, 4))
    activation = BYTES * 512 * 64
    assert plain - one <= activation  # the last segment is not checkpointed: one is none
    assert plain - four >= 2 * activation  # six inputs of layers are not held, two come back


@pytest.mark.parametrize("wrap", [lambda x: {"rows": x}, lambda x: [{"rows": x}]])
def test_inputs_in_mappings_and_lists_have_their_size(wrap):
    """torchinfo#30, #46."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, batch):
            return self.layer((batch[0] if isinstance(batch, list) else batch)["rows"])

    assert tg.measure_memory(Rows(), tg.Inputs((wrap(X),))).inputs == BYTES * 32


def test_the_model_leaves_with_the_keys_and_modes_that_it_came_with():
    """yolov3#1471 (keys total_ops), torchinfo#121, #331 (modes), pytorch#111809 (results)."""

    class Pair(nn.Sequential):
        def forward(self, x):
            return super().forward(x), (x,)

    model = Pair(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout())
    model[1].eval()
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    attributes = [sorted(vars(module)) for module in model.modules()]
    tg.count_cost(model, X, backward=True)
    tg.measure_memory(model, X)
    tg.measure_latency(model, X, iterations=2, processes=1)
    assert [module.training for module in model.modules()] == modes
    assert [sorted(vars(module)) for module in model.modules()] == attributes
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert isinstance(model(X)[1], tuple)
