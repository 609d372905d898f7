"""Simulated steps against real ones, whose peak the allocator's events tell to the byte."""

import subprocess
import sys

import pytest
import torch
from benchmarks.training_memory_models import CASES, Case, checkpointed, squares
from tests.support.paths import BENCHMARKS
from torch import nn

import torchgauge as tg
from torchgauge.analyze.memory.training_memory import HIGH, LOW
from torchgauge.errors import MeasurementError
from torchgauge.measure.memory.simulated_step import simulate
from torchgauge.measure.work.count import memory_of
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.targets.builds.source import Source
from torchgauge.targets.training.training import Training

BENCHMARK = BENCHMARKS / "training_memory.py"
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def estimated(case, *, precision=None, again=False, optimizer="adam"):
    """Return the estimate of a model on meta tensors."""
    with torch.device("meta"):
        model, inputs = case.model(), case.inputs()
    model = checkpointed(model, case) if again else model
    placement = Source.of_object(model, inputs, precision=precision, training=True).open()
    train = Training(case.loss, OPTIMIZERS[optimizer])
    return memory_of(placement, simulate(placement, train), optimizer=optimizer)


def measured(case, *, again=False, optimizer="adam"):
    model = checkpointed(case.model(), case) if again else case.model()
    train = tg.Training(case.loss, OPTIMIZERS[optimizer])
    return tg.measure_memory(model, case.inputs(), train=train)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("LSTM, small batch", "adam"), ("U-Net", "sgd"), ("Recommender", "adam")],
)
def test_the_peak_is_near_what_a_real_step_takes(name, optimizer):
    step = estimated(CASES[name], optimizer=optimizer).assumed
    peak = measured(CASES[name], optimizer=optimizer).peak
    assert LOW < step.total / peak < HIGH
    assert step.lower_bound <= peak
    assert sum(step.at_peak.values()) == step.total


@pytest.mark.slow
def test_a_checkpointed_step_is_near_too_and_smaller():
    case = CASES["Transformer encoder"]
    step = estimated(case, again=True, optimizer="sgd").assumed
    assert LOW < step.total / measured(case, again=True, optimizer="sgd").peak < HIGH
    assert step.total < 0.6 * estimated(case, optimizer="sgd").assumed.total


def test_activations_under_autocast_by_hand():
    case = CASES["MLP, large batch"]
    whole, half = estimated(case), estimated(case, precision="bf16")
    assert half.gradients == whole.gradients
    # Seven layers keep their output before and after GELU.
    one = 4096 * 256
    assert whole.activations.bytes == 14 * one * 4 + 4
    # Half of that; the outputs in float32 for the loss, the input and six weights cast.
    assert half.activations.bytes == 14 * one * 2 + one * 4 + one * 2 + 6 * 256 * 256 * 2 + 4


def test_the_activations_of_an_lstm_are_what_is_measured():
    case = Case(lambda: nn.LSTM(64, 128, 2), lambda: (torch.randn(100, 8, 64),), squares)
    real = measured(case)
    kept = real.retained_for_backward + real.outputs
    assert estimated(case).activations.bytes == pytest.approx(kept, rel=0.05)


def test_activations_by_hand():
    case = Case(lambda: nn.Linear(8, 4, bias=False), lambda: (torch.randn(2, 8),), squares)
    found = estimated(case, optimizer="sgd")
    assert found.assumed.states.bytes == 0
    # Outputs of 2 · 4 floats; the loss is one.
    assert found.activations.bytes == 2 * 4 * 4 + 4
    assert found.gradients.bytes == 8 * 4 * 4


def test_nothing_of_the_model_is_changed():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval(), torch.randn(3, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    simulate(Source.of_object(model, x, training=True).open())
    assert not model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


def reads_values(module, x):
    return x * int(module.weight.sum().item())


@pytest.mark.parametrize(
    "model",
    [
        torch.jit.script(nn.Linear(4, 4)),
        type("Values", (nn.Linear,), {"forward": reads_values})(4, 4),
    ],
)
def test_what_cannot_be_simulated_is_refused(model):
    placement = Source.of_object(model, torch.randn(2, 4), training=True).open()
    with pytest.raises(MeasurementError):
        simulate(placement)


@torch.library.custom_op("tests_simulated_step::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


double.register_fake(torch.empty_like)
double.register_autograd(lambda _, gradient: gradient * 2)


def test_what_kernels_hold_inside_is_known_or_said_to_be_unknown():
    forward = {"forward": lambda m, x: torch.linalg.matrix_exp(x @ m.weight)}
    model = type("Exponential", (nn.Linear,), forward)(4, 4)
    placement = Source.of_object(model, torch.randn(4, 4), training=True).open()
    found = simulate(placement)
    assert found.unknown == ("aten::linalg_matrix_exp",)
    step = memory_of(placement, found).assumed
    assert (step.total, step.moment, step.at_peak) == (None, None, {})
    assert step.lower_bound >= found.activations
    on_a_gpu = simulate(placement, kernels=CudaKernels())
    assert not on_a_gpu.unknown  # the CPU's workspaces are left out


def test_what_products_in_half_precision_take_is_unknown():
    model = nn.Linear(4, 4, bias=False).bfloat16()
    inputs = torch.randn(4, 4).bfloat16()
    placement = Source.of_object(model, inputs, training=True).open()
    assert simulate(placement).unknown == ("aten::mm",)
    assert not simulate(placement, kernels=CudaKernels()).unknown


def test_what_an_unknown_operator_takes_is_not_guessed():
    model = type("Doubled", (nn.Linear,), {"forward": lambda m, x: double(x @ m.weight)})(4, 4)
    placement = Source.of_object(model, torch.randn(2, 4), training=True).open()
    assert simulate(placement).unknown == ("tests_simulated_step::double",)


def test_activations_beside_an_unknown_operator_are_those_without_it():
    def volume(channels):
        return Case(
            lambda: nn.Sequential(nn.Conv3d(channels, 16, 3, padding=1), nn.ReLU()),
            lambda: (torch.randn(2, channels, 6, 6, 6),),
            squares,
        )

    known, unknown = estimated(volume(1)), estimated(volume(5))
    assert known.assumed.total is not None
    assert unknown.assumed.total is None
    assert unknown.activations == known.activations
    assert unknown.activations.bytes == 2 * 16 * 216 * 4 + 4  # what ReLU returns, and the loss


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_operator_of_torchs_tests_is_known_or_said_to_be_unknown(dtype):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "operator_memory.py"), "--dtype", dtype],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_against_a_hook_on_the_allocator():
    """The whole table is benchmarks/training_memory.py."""
    names = ["LSTM", "U-Net", "Llama", "ResNet-18", "ConvNeXt"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
