"""Findings of real runs on this machine's processor: models with one fault each, and sound ones."""

import pytest
import torch
from tests.support import faulty_models as models
from torch import nn

import torchgauge as tg

pytestmark = pytest.mark.thorough

# The rules whose findings name a fault; the others say where time and memory go.
FAULTS = frozenset({
    "eager-attention", "math-attention", "unfused-elementwise", "casts", "contiguous-copies",
    "fills", "float64-products", "single-row-products", "training-mode", "composed-layers",
    "dense-embedding-gradient", "recomputation", "zeroed-gradients",
})  # fmt: skip
TRAINING = tg.Training(
    loss=lambda outputs, inputs: outputs.square().mean(),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
)


@pytest.fixture(autouse=True)
def _one_thread():
    """With more the times are those of waiting for a busy core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def faults(model, inputs, train=None):
    model = model.train() if train else model.eval()
    brief = {"effort": "quick", "iterations": 5, "warmup": 1, "roofs": False, "progress": False}
    profile = tg.profile(model, inputs, train=train, **brief)
    return [found.id for found in profile.findings if found.id in FAULTS]


@pytest.mark.parametrize(
    ("model", "inputs", "rule"),
    [
        (models.EagerAttention, (4, 256, 256), "eager-attention"),
        (models.MathAttention, (4, 256, 256), "math-attention"),
        (models.normalised, (64, 256, 256), "composed-layers"),
        (models.activated, (8192, 64), "unfused-elementwise"),
        (models.Transposed, (64, 256, 64), "contiguous-copies"),
        # A CPU without bfloat16 spends its time on the products, and the casts go unnoticed.
        pytest.param(
            models.CastedLayers,
            (16384, 32),
            "casts",
            marks=pytest.mark.skipif(
                not torch.cpu._is_avx512_bf16_supported(), reason="the CPU emulates bfloat16"
            ),
        ),
        (models.AlwaysDropped, (4096, 64), "training-mode"),
        (models.Filled, (64, 64), "fills"),
        (lambda: models.perceptron(1024, 4), (1, 1024), "single-row-products"),
    ],
)
def test_the_fault_of_a_model_is_its_first_finding(model, inputs, rule):
    assert faults(model(), torch.randn(inputs))[:1] == [rule]


def test_double_precision():
    found = faults(models.perceptron().double(), torch.randn(512, 256).double())
    assert found == ["float64-products"]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (models.FusedAttention, (4, 256, 256)),
        (lambda: models.perceptron(512, 3), (1024, 512)),
        (lambda: nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256)), (4096, 256)),
        (lambda: nn.Sequential(nn.Conv2d(8, 64, 3), nn.BatchNorm2d(64), nn.ReLU()), (8, 8, 64, 64)),
        (lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1)), (4096, 64)),
        (lambda: nn.Sequential(nn.Linear(256, 256), nn.GELU()), (4096, 256)),
    ],
)
def test_a_sound_model_has_no_fault(model, inputs):
    assert faults(model(), torch.randn(inputs)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [
        (models.EagerAttention(), torch.randn(4, 256, 256), ["eager-attention"]),
        (models.Checkpointed(), torch.randn(512, 256), ["recomputation"]),
        (models.bag(), torch.randint(0, 1000, (32, 16)), ["dense-embedding-gradient"]),
        (models.perceptron(512, 3), torch.randn(1024, 512), []),
        (models.FusedAttention(), torch.randn(4, 256, 256), []),
    ],
)
def test_faults_of_training_steps(model, inputs, expected):
    assert faults(model, inputs, TRAINING)[:1] == expected


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_a_loop_fills_with_zeros(to_none):
    model = nn.Linear(64, 64)
    # A quarter of the step's traffic is zeros, whatever else the machine does.
    large = nn.Parameter(torch.zeros(6_000_000))
    large.grad = torch.zeros_like(large)
    optimizer = torch.optim.SGD([*model.parameters(), large], lr=1e-3)
    schedule = tg.Schedule(skip=0, warmup=1, record=2)
    with tg.timeline(model, schedule=schedule) as run:
        for _ in range(6):
            optimizer.zero_grad(set_to_none=to_none)
            model(torch.ones(64, 64)).sum().backward()
            optimizer.step()
    found = {entry.id for entry in run.record.findings}
    assert ("zeroed-gradients" in found) != to_none


def test_a_trace_of_the_processor_alone_has_the_findings_of_a_profile(tmp_path):
    model, inputs = models.EagerAttention().eval(), torch.randn(4, 256, 256)
    model(inputs)  # the first call prepares products, and takes far longer
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as recording:
        for _ in range(3):
            model(inputs)
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    (rank,) = tg.read_trace(tmp_path / "trace.json").ranks
    found = [entry.id for entry in rank.findings if entry.id in FAULTS]
    assert found[:1] == ["eager-attention"]
