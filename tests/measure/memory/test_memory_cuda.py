"""The memory probe on a GPU, against the allocator's own account."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchgauge.measure.memory import memory
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import place
from torchgauge.targets.target import Target
from torchgauge.targets.training.training import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("train", [None, Training(lambda out, _: out.sum(), torch.optim.Adam)])
def test_the_recorded_peak_is_the_allocators(train):
    # Every tensor is a multiple of the allocator's 512 bytes, so no rounding is in between.
    model = nn.Sequential(
        nn.Linear(1024, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 1024, bias=False)
    )
    inputs = Inputs.of(torch.randn(256, 1024))
    target = Target(model, inputs, spec="test", kind="module", name="test", batch=256)
    result = memory.measure(place(target, device="cuda:0", owned=True), train=train)
    assert sum(result.parts.values()) == result.peak
    assert result.parts["parameters"] == 2 * 1024 * 1024 * 4
    assert result.parts["inputs"] == 256 * 1024 * 4
    # Workspaces of cuBLAS, made in the warm-up and kept, are in both.
    assert result.peak == pytest.approx(result.allocator_peak, rel=0.01)
    assert result.reserved >= result.allocator_peak
    assert result.fragmentation.reserved_unused >= 0
    if train is None:
        assert result.parts["activations"] == 2 * 256 * 1024 * 4  # before and after ReLU
    else:
        assert result.parts["optimizer"] >= 2 * 2 * 1024 * 1024 * 4
        assert result.retained_for_backward == 256 * 1024 * 4  # the result of ReLU
