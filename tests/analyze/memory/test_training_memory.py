"""The memory of a training step against real optimizers, and by hand."""

from collections import Counter

import pytest
import torch
from tests.support.operator_costs import size
from torch import nn

from torchgauge.analyze.memory.training_memory import (
    MASTERS,
    OPTIMIZERS,
    STATE_TENSORS,
    Passes,
    Trainable,
    optimizer_named,
    states,
    temporaries,
    training_memory,
)
from torchgauge.errors import InputError

REAL = {
    "sgd": torch.optim.SGD,
    "sgd-momentum": lambda p: torch.optim.SGD(p, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamw-amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adafactor": torch.optim.Adafactor,
}


def network():
    """A matrix, a vector, a convolution, an embedding, a scalar, in three dtypes; one frozen."""
    torch.manual_seed(0)
    model = nn.Module()
    model.parts = nn.ModuleList(
        [
            nn.Linear(7, 5),
            nn.Conv2d(3, 4, (2, 3), dtype=torch.bfloat16),
            nn.Embedding(11, 6, dtype=torch.float64),
            nn.LayerNorm(9, dtype=torch.float16),
        ]
    )
    model.scale = nn.Parameter(torch.tensor(2.0))
    model.parts[0].bias.requires_grad_(False)
    return model


def trainable(model):
    return [
        Trainable(tuple(p.shape), str(p.dtype).removeprefix("torch."), p.itemsize)
        for p in model.parameters()
        if p.requires_grad
    ]


def stepped(model, make):
    parameters = [p for p in model.parameters() if p.requires_grad]
    for one in parameters:
        one.grad = torch.ones_like(one)
    optimizer = make(parameters)
    optimizer.step()
    return optimizer


def bytes_of(optimizer):
    found = Counter()
    for kept in optimizer.state.values():
        for value in kept.values():
            if isinstance(value, torch.Tensor):
                found[str(value.dtype).removeprefix("torch.")] += value.nbytes
    return dict(found)


def test_every_optimizer_is_compared_with_its_own():
    assert {*REAL, MASTERS} == set(OPTIMIZERS)
    assert set(STATE_TENSORS) < set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_states_are_those_that_torch_keeps_to_the_byte(name):
    model = network()
    assert states(trainable(model), name) == bytes_of(stepped(model, REAL[name]))


def test_fp32_masters_are_adamw_on_float32_copies_of_what_is_half_precision():
    model = network()
    half = [p for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    kept = bytes_of(stepped(model.to(torch.float32), REAL["adamw"]))
    fresh = network()
    float64 = 2 * fresh.parts[2].weight.nbytes
    expected = kept["float32"] + sum(4 * p.numel() for p in half) - float64 // 2
    assert states(trainable(fresh), MASTERS) == {"float32": expected, "float64": float64}


def test_gradients_are_one_per_trainable_parameter_in_its_dtype():
    model = network()
    stepped(model, REAL["sgd"])
    real = Counter()
    for one in model.parameters():
        if one.grad is not None:
            real[str(one.grad.dtype).removeprefix("torch.")] += one.grad.nbytes
    found = training_memory(size(1000), trainable(model), inputs=0, passes=None)
    assert found.gradients.by_dtype == real
    assert found.gradients.bytes == real.total()


PARAMETERS = [Trainable((10, 20), "float32", 4), Trainable((50,), "bfloat16", 2)]  # 900 B
PASSES = Passes(
    peak=2600,
    moment="backward",
    parts={"gradients": 600, "activations": 1500, "workspace": 500},
    activations=2000,
    after_backward=950,
)


def step(optimizer, passes=PASSES, parameters=PARAMETERS, model=900):
    return training_memory(
        size(model, 40), parameters, inputs=7, passes=passes, activations=1, optimizer=optimizer
    )


def test_a_step_by_hand():
    found = step("sgd-momentum")
    assert {name: part.bytes for name, part in found.parts.items()} == {
        "parameters": 900, "buffers": 40, "inputs": 7, "gradients": 900, "states": 900,
        "activations": 2000,
    }  # fmt: skip
    assert {part.how for part in found.parts.values()} == {"counted"}
    assert found.assumed.at_peak == {
        "parameters": 900, "buffers": 40, "inputs": 7, "states": 900, "gradients": 600,
        "activations": 1500, "workspace": 500,
    }  # fmt: skip
    assert (found.assumed.total, found.assumed.moment) == (900 + 40 + 7 + 900 + 2600, "backward")
    assert found.assumed.lower_bound == 900 + 40 + 7 + 900 + 2000
    assert found.assumed.how == "estimated"
    assert found.optimizers["adamw"].states.by_dtype == {"float32": 1608, "bfloat16": 200}
    assert found.optimizers["adafactor"].states.bytes == 4 * 30 + 2 * 50 + 2 * 4
    assert found.optimizers[MASTERS].states.how == "estimated"


def test_a_step_whose_optimizer_needs_the_most_by_hand():
    # Adam's two temporaries of 800 bytes beside all gradients and an output of 50.
    found = step("adam", PASSES).assumed
    assert temporaries(PARAMETERS, "adam") == 1600
    assert found.moment == "backward"
    low = PASSES.__class__(**{**vars(PASSES), "peak": 2549})
    found = step("adam", low).assumed
    assert found.moment == "optimizer"
    kept = {name: found.at_peak[name] for name in ("gradients", "activations", "workspace")}
    assert kept == {"gradients": 900, "activations": 50, "workspace": 1600}
    assert found.total == sum(found.at_peak.values())


def test_without_simulated_passes_there_is_the_least_alone():
    found = step("sgd", None)
    assert found.activations.bytes == 1
    assert {one.total for one in found.optimizers.values()} == {None}
    assert found.assumed.lower_bound == 900 + 40 + 7 + 900
    assert found.assumed.at_peak == {}


@pytest.mark.parametrize("name", REAL)
def test_temporaries_are_those_that_torch_allocates(name):
    import torchgauge as tg

    class Free(nn.Module):
        """Three matrices without a forward pass worth the name."""

        def __init__(self):
            super().__init__()
            sizes = (300, 400, 200)
            self.all = nn.ParameterList(torch.randn(n, 100) for n in sizes)

        def forward(self, x):
            return x * sum(one[0, 0] for one in self.all)

    model, x = Free(), torch.randn(1)
    train = tg.Training(loss=lambda out, _: out.sum(), optimizer=REAL[name])
    real = tg.measure_memory(model, x, train=train)
    found = temporaries(trainable(model), name)
    held = real.parameters + real.inputs + real.optimizer + 4 * 900 * 100
    # In the backward pass each gradient comes beside one that it is added to.
    assert real.peak - held == pytest.approx(max(found, 0), abs=0.02 * 4 * 900 * 100)


def test_what_trains_nothing_keeps_nothing():
    nothing = Passes(0, "forward", {}, activations=5, after_backward=0)
    found = step("adam", nothing, [])
    assert found.gradients.bytes == 0
    assert {one.states.bytes for one in found.optimizers.values()} == {0}


def test_names_are_read_in_any_case_and_others_are_refused():
    assert optimizer_named("AdamW") == "adamw"
    with pytest.raises(InputError) as caught:
        optimizer_named("lbfgs")
    assert caught.value.id == "optimizer-unknown"
    assert "adafactor" in caught.value.cause
