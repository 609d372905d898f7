"""FLOPs from recorded events are those of the cost pass, per layer call path and phase."""

import sys

import pytest
import torch
from tests.support.paths import BENCHMARKS
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchgauge.targets.inputs.inputs import Inputs

FAST = ("mixture of experts", "recurrent", "transposed", "transformer encoder", "checkpointed",
        "checkpointed, reentrant", "vit")  # fmt: skip
SLOW = ("resnet18", "mobilenet_v2", "densenet121", "efficientnet_b0", "swin_t", "bert", "gpt2",
        "llama", "mixtral", "t5", "whisper", "mamba")  # fmt: skip
NAMES = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import costs_events
    finally:
        sys.path.remove(str(BENCHMARKS))
    return costs_events


@pytest.mark.parametrize("mode", ["inference", "no_grad", "training"])
@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)]
)
def test_models(benchmark, name, mode):
    package = {"vit": "torchvision"} | dict.fromkeys(SLOW[:5], "torchvision")
    pytest.importorskip(package.get(name, "transformers" if name in SLOW else "torch"))
    torch.manual_seed(0)
    found = benchmark.compared(*benchmark.MODELS[name](), mode)
    assert disagreements(found) == {}


def disagreements(found):
    """What of a comparison is not as it is where both agree on all of a model that works."""
    wanted = {
        "differing": (found.differing, {}),
        "unknown": (found.unknown, []),
        "equal layers": (found.equal, found.layers),
        "coverage": (found.costs.coverage, 1),
        "has layers and FLOPs": (found.layers > 0 and found.cost.flops > 0, True),
    }
    return {name: found for name, (found, right) in wanted.items() if found != right}


class Ends(nn.Module):
    """A checkpoint that ends in each of the ways that decide whether its last operator ran."""

    def __init__(self, end):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), end)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Custom(nn.Module):
    def forward(self, x):
        return Twice.apply(x)


@pytest.mark.parametrize(
    "end",
    [nn.Linear(8, 8), nn.ReLU(), nn.GELU(), nn.Softmax(-1), nn.LayerNorm(8), nn.Sigmoid(),
     nn.SiLU(), nn.Dropout(), nn.BatchNorm1d(8), nn.PReLU(), Custom()],
    ids=lambda end: type(end).__name__,
)  # fmt: skip
def test_what_a_checkpoint_stopped(benchmark, end):
    x = torch.randn(4, 8, requires_grad=True)
    found = benchmark.compared(Ends(end), Inputs((x,)), "training")
    assert disagreements(found) == {}


def test_a_view_that_is_written_to_takes_its_backward_work_to_its_layer(benchmark):
    class Flattens(nn.Module):
        def __init__(self):
            super().__init__()
            self.after = nn.Sequential(nn.Dropout(inplace=True), nn.Linear(6, 2))

        def forward(self, x):
            return self.after(torch.flatten(x * 2, 1))

    x = torch.randn(4, 2, 3, requires_grad=True)
    found = benchmark.compared(Flattens(), Inputs((x,)), "training")
    assert disagreements(found) == {}
