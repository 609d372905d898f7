"""Profiler on torch modules, the framework beside torch, and a process without torch."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest
import torch
from tests.support import numpy_framework as fw
from tests.support.operator_costs import ROOFS
from torch import nn

import torchgauge as tg

profiler = tg.Profiler()

PAIRS = [
    (fw.Linear(8, 16), nn.Linear(8, 16), (3, 5, 8)),
    (fw.Conv2d(4, 8, 3, 2, 1, groups=2), nn.Conv2d(4, 8, 3, 2, 1, groups=2), (2, 4, 9, 11)),
    (fw.Conv2d(4, 6, 3, dilation=2), nn.Conv2d(4, 6, 3, dilation=2), (2, 4, 9, 11)),
    (fw.MaxPool2d(3, 2), nn.MaxPool2d(3, 2), (2, 4, 9, 11)),
    (fw.AvgPool2d(2), nn.AvgPool2d(2), (2, 4, 9, 11)),
    (fw.ReLU(), nn.ReLU(), (2, 7)),
    (fw.Softmax(), nn.Softmax(-1), (2, 7)),
    (fw.LayerNorm(16), nn.LayerNorm(16), (2, 5, 16)),
    (fw.BatchNorm2d(4), nn.BatchNorm2d(4), (2, 4, 3, 3)),
    (fw.Embedding(20, 8), nn.Embedding(20, 8), (2, 6)),
    (
        fw.TransformerBlock(16, 4, 32),
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        (2, 5, 16),
    ),
    (
        fw.Sequential(
            fw.Conv2d(3, 4, 3), fw.ReLU(), fw.MaxPool2d(2), fw.Flatten(), fw.Linear(36, 5)
        ),
        nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5)
        ),
        (2, 3, 8, 8),
    ),
]


@pytest.mark.parametrize(("ours", "module", "shape"), PAIRS, ids=lambda one: type(one).__name__)
def test_numpy_and_torch_count_the_same(ours, module, shape):
    whole = torch.zeros(shape, dtype=torch.int64 if isinstance(module, nn.Embedding) else None)
    torchs = tg.count_cost(module, whole)
    assert profiler.count_flops(module, shape) * shape[0] == torchs.flops
    assert profiler.count_flops(ours, shape) * shape[0] == torchs.flops
    assert profiler.count_parameters(ours) == profiler.count_parameters(module)


def test_a_module():
    module, x = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), torch.randn(4, 32)
    found = profiler.profile_forward_pass(module, x, warmup=2, iterations=10)
    assert found["parameters"] == 32 * 64 + 64 + 64 * 8 + 8
    assert found["flops"] == 2 * (32 * 64 + 64 * 8) + 64
    assert found["batch_flops"] == 4 * found["flops"]
    rate = found["batch_flops"] / (found["latency_ms"] * 1e-3) / 1e9
    assert found["gflops_per_second"] == pytest.approx(rate)
    assert found["bottleneck"] in ("compute", "memory", "overhead", "unknown")
    assert found["parameter_memory_mb"] == pytest.approx(found["parameters"] * 4 / 1e6)
    assert 0 < found["memory_efficiency"] <= 1


def test_the_bottleneck_is_that_of_a_profile(monkeypatch):
    from torchgauge.compat import torch_subject

    class Slow(nn.Linear):
        def forward(self, x):
            time.sleep(0.005)
            return super().forward(x)

    monkeypatch.setattr(torch_subject, "known_roofs", lambda where: ROOFS)
    found = profiler.profile_forward_pass(Slow(32, 64), torch.ones(4, 32), warmup=0, iterations=5)
    # 16 kFLOP at 100 GFLOP/s are 0.003 % of 5 ms, and one call of 2 µs is no overhead.
    assert 0 < found["computational_efficiency"] < 0.001
    assert found["bottleneck"] == "unknown"
    assert found["bottleneck_confidence"] == "unsure"

    # As many calls as would take 2 ms empty on such a machine.
    slow_calls = msgspec.structs.replace(ROOFS, dispatch=1e-4)
    monkeypatch.setattr(torch_subject, "known_roofs", lambda where: slow_calls)
    many = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)))
    found = profiler.profile_forward_pass(many, torch.ones(1, 8), warmup=2, iterations=10)
    assert found["bottleneck"] == "overhead"
    assert any("operator calls" in line for line in found["bottleneck_evidence"])


def test_a_training_pass_of_a_module():
    module, x = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 8)), torch.randn(4, 32)
    before = [one.clone() for one in module.parameters()]
    found = profiler.profile_backward_pass(module, x, warmup=1, iterations=5)
    forward = 2 * 4 * (32 * 64 + 64 * 8)
    assert found["forward_flops"] == forward
    # The gradients of both weights and of the second's input; the bias gradients are sums.
    products = forward + 2 * 4 * 64 * 8
    assert products < found["backward_flops"] < 1.1 * products
    assert found["backward_flops_how"] == "counted"
    assert found["total_flops"] == forward + found["backward_flops"]
    assert found["gradient_memory_mb"] == pytest.approx((32 * 64 + 64 + 64 * 8 + 8) * 4 / 1e6)
    assert found["backward_latency_ms"] > 0
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert all(one.grad is None for one in module.parameters())


@pytest.mark.thorough
def test_the_memory_of_both_passes_is_measured_with_what_the_forward_keeps():
    module = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)))
    x = torch.randn(512, 64)
    found = profiler.profile_backward_pass(module, x, warmup=0, iterations=1)
    kept = 8 * 512 * 64 * 4  # what each ReLU returns, for its own backward and the next layer's
    whole = found["total_memory_mb"] * 1e6
    assert whole > kept + x.nbytes + tg.measure_size(module).bytes
    train = tg.Training(lambda out, _: out.mean(), torch.optim.SGD)
    assert whole == pytest.approx(tg.measure_memory(module, x, train=train).peak, rel=0.01)
    assert found["total_memory_how"] == "measured"
    # The forward alone holds two layers' outputs at a time.
    assert found["forward_memory_mb"] * 1e6 < kept


def test_of_no_sample_the_work_of_one_is_told():
    assert profiler.count_flops(nn.Linear(8, 4), (0, 8)) == 64
    found = profiler.profile_forward_pass(nn.Linear(8, 4), torch.ones(0, 8), warmup=0, iterations=1)
    assert (found["flops"], found["batch_flops"]) == (64, 0)


def test_an_image_without_a_batch():
    assert profiler.count_flops(nn.Conv2d(3, 8, 3), (3, 10, 12)) == 2 * 8 * 8 * 10 * 27


def test_a_module_of_indices_and_a_function_of_tensors():
    words = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 4))
    assert profiler.count_flops(words, (2, 3)) == 3 * 64
    found = tg.quick_profile(lambda x: x @ x.T, torch.randn(4, 8))
    assert (found["parameters"], found["batch_flops"]) == (None, 2 * 4 * 4 * 8)


def test_work_that_torch_does_not_tell_is_unknown():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x @ x.T)

    found = tg.quick_profile(Odd(), torch.randn(4, 4))
    cost = tg.count_cost(Odd(), torch.randn(4, 4))
    if cost.at_least:
        assert found["batch_flops"] is None
        assert found["flops_at_least"] == cost.flops
    else:
        assert found["batch_flops"] == cost.flops


def test_a_module_that_raises():
    with pytest.raises(tg.MeasurementError, match="raised RuntimeError"):
        tg.quick_profile(nn.Linear(3, 4), torch.randn(2, 5))
    with pytest.raises(tg.MeasurementError, match="raised RuntimeError"):
        profiler.count_flops(nn.Linear(3, 4), (2, 5))


def test_what_a_module_raises_is_of_its_own_type():
    with pytest.raises(RuntimeError, match="raised RuntimeError") as error:
        profiler.measure_memory(nn.Linear(3, 4), (2, 5))
    assert type(error.value.__cause__) is RuntimeError


def test_a_torch_tensor_is_one_operation_for_each_element():
    assert profiler.count_flops(torch.ones(4, 8), (4, 8)) == 32


def test_ones_own_latency_of_a_module_is_used():
    class Mine(tg.Profiler):
        def measure_latency(self, model, input_tensor, warmup=10, iterations=100):
            assert isinstance(input_tensor, torch.Tensor)
            return 2.0

    found = Mine().profile_layer(nn.Linear(4, 3), (7, 4))
    assert found["gflops_per_second"] == pytest.approx(found["batch_flops"] / 1e9 / 0.002)


WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def without_torch(name, path=None, target=None):
    return None if name.partition(".")[0] == "torch" else find(name, path, target)

PathFinder.find_spec = without_torch
import numpy as np
import torchgauge as tg
from tests.support import numpy_framework as fw

block = fw.Sequential(fw.Embedding(20, 16), fw.TransformerBlock(16, 4, 32), fw.Linear(16, 20))
profiler = tg.Profiler()
ANSWERS = ("compute", "memory", "overhead", "unknown")
x = fw.Tensor(np.zeros((2, 5), np.int64))
found = profiler.profile_forward_pass(block, x, warmup=1, iterations=3)
assert found["flops"] == profiler.count_flops(block, (7, 5)) > 0
assert found["batch_flops"] == 2 * found["flops"] and found["latency_ms"] > 0
assert found["peak_memory_mb"] > 0 and found["bottleneck"] in ANSWERS
assert profiler.profile_backward_pass(fw.Linear(4, 4), fw.Tensor(np.ones((2, 4))))["total_flops"]

class Estimator:
    def predict(self, x):
        return x.sum(axis=1)

results = tg.ModelProfiler(Estimator()).profile(np.ones((10, 3)), num_runs=5, warmup_runs=1)
assert results["latency"]["mean"] > 0 and results["throughput"]["samples_per_second"] > 0
assert results["memory"]["peak"] >= 240 and results["memory"]["average"] is None
assert "torch" not in sys.modules and str(results)
try:
    tg.ModelProfiler("hf:bert")
except tg.MissingExtraError as error:
    print("said:", error.remedy)
"""


@pytest.mark.slow
def test_nothing_of_it_needs_torch():
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "torchgauge-profiler[torch]" in ran.stdout


def test_numpy_inputs_of_a_module_become_tensors():
    results = tg.ModelProfiler(nn.Linear(8, 4)).profile(np.ones((2, 8), np.float32), num_runs=3)
    assert results["model"]["flops"] == 128
