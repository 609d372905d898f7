"""What only a GPU can show. Run with `pytest -m gpu` on a machine that has one."""

import pytest
import torch
from torch import nn

import torchgauge as tg

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


@pytest.fixture
def model():
    return nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8)))


def test_device_time_and_latency(model):
    profile = tg.profile(model, torch.randn(512, 2048), device="cuda", iterations=50, roofs=False)
    assert profile.complete, profile.warnings
    assert profile.target.device.startswith("cuda:")
    assert 0 < profile.latency.device_time <= profile.latency.median
    assert next(model.parameters()).device.type == "cpu"


def test_memory_equals_the_allocators_own_peak(model):
    inputs = torch.randn(512, 2048, device="cuda")
    memory = tg.measure_memory(model.cuda(), inputs)
    assert sum(memory.parts.values()) == memory.peak
    assert memory.peak == pytest.approx(memory.allocator_peak, rel=0.02)
    assert memory.fragmentation is not None


def test_training_memory(model):
    train = tg.Training(lambda out, _: out.square().mean(), torch.optim.AdamW)
    memory = tg.measure_memory(model.cuda(), torch.randn(512, 2048, device="cuda"), train=train)
    parameters = tg.measure_size(model).parameter_bytes
    assert memory.gradients == parameters
    assert memory.optimizer == pytest.approx(2 * parameters, rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_precisions(model, precision):
    before = torch.backends.cuda.matmul.allow_tf32
    profile = tg.profile(
        model, torch.randn(64, 2048), device="cuda", precision=precision, iterations=20,
        detail="summary", roofs=False,
    )  # fmt: skip
    assert profile.complete, profile.warnings
    assert profile.target.precision == precision
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_cold_cache_is_not_faster(model):
    small = model[:1].cuda()
    inputs = torch.randn(8, 2048, device="cuda")
    warm = tg.measure_latency(small, inputs, iterations=200)
    cold = tg.measure_latency(small, inputs, iterations=200, cold_cache=True)
    assert cold.device_time > warm.device_time


def test_gpu_metrics_are_read(model):
    pytest.importorskip("pynvml")
    profile = tg.profile(
        model, torch.randn(512, 2048), device="cuda", iterations=20, detail="summary", roofs=False
    )
    (gpu,) = profile.system.gpus
    assert gpu.memory.max > 0
    assert gpu.power.mean > 0


def test_running_out_of_memory_says_what_was_asked_and_free():
    with pytest.raises(tg.MeasurementError) as caught:
        tg.measure_latency(lambda: torch.empty(2**46, device="cuda", dtype=torch.uint8))
    assert caught.value.id == "out-of-memory"
    assert "were requested" in caught.value.cause


def test_layers_are_marked_for_nsight_systems(model):
    with tg.nvtx(model.cuda()):
        model(torch.randn(1, 2048, device="cuda"))
    torch.cuda.synchronize()
