"""What is asked of CUDA's allocator, and in which order; CUDA itself is a fake."""

from __future__ import annotations

import pytest
import torch

from torchgauge.errors import MeasurementError
from torchgauge.measure.memory.process_memory import allocated, watched

GPU = torch.device("cuda", 1)
STATS = {
    "requested_bytes.all.current": 900,
    "allocated_bytes.all.current": 1024,
    "inactive_split_bytes.all.current": 512,
    "reserved_bytes.all.current": 4096,
    "active_bytes.all.current": 1536,
}


def segment(device, *blocks):
    return {"device": device, "blocks": [{"size": s, "state": state} for s, state in blocks]}


class FakeCuda:
    """Writes down what it is asked; synchronizing fails where `failing` says so."""

    def __init__(self, failing=(), snapshot=None):
        self.calls, self.failing, self.snapshot = [], failing, snapshot

    def synchronize(self, device):
        self.calls.append("synchronize")
        if self.calls.count("synchronize") in self.failing:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    def empty_cache(self):
        self.calls.append("empty_cache")

    def reset_peak_memory_stats(self, device):
        self.calls.append("reset")

    def max_memory_allocated(self, device):
        self.calls.append("read")
        return 3000

    def max_memory_reserved(self, device):
        return 4096

    def memory_allocated(self, device):
        return {GPU: 1024}[device]

    def memory_stats(self, device):
        return STATS

    def memory_snapshot(self):
        if self.snapshot is None:
            raise RuntimeError("cudaMallocAsync does not yet support snapshot.\n  If you need it")
        return self.snapshot


def test_the_cache_is_emptied_before_the_statistics_start_anew():
    cuda = FakeCuda(snapshot=[])
    with watched(GPU, cuda=cuda) as found:
        cuda.calls.append("step")
    assert cuda.calls == ["synchronize", "empty_cache", "reset", "step", "synchronize", "read"]
    assert (found.peak, found.reserved, found.warnings) == (3000, 4096, ())


def test_fragmentation_by_hand():
    blocks = [segment(1, (512, "active_allocated"), (2048, "inactive"), (512, "inactive"))]
    with watched(GPU, cuda=FakeCuda(snapshot=[*blocks, segment(0, (9000, "inactive"))])) as found:
        pass
    result = found.fragmentation
    assert (result.internal, result.external) == (1024 - 900, 512)
    assert result.reserved_unused == 4096 - 1536
    assert (result.largest_free, result.total_free) == (2048, 2048 + 512)


def test_an_allocator_without_a_snapshot_leaves_fragmentation_unknown():
    with watched(GPU, cuda=FakeCuda()) as found:
        pass
    assert found.fragmentation is None
    assert found.peak == 3000
    (warning,) = found.warnings
    assert warning.id == "fragmentation-unknown"
    assert "cudaMallocAsync does not yet support snapshot. If" in warning.cause


@pytest.mark.parametrize(("failing", "calls"), [(1, 1), (2, 4)])
def test_work_that_failed_on_the_device_is_named(failing, calls):
    cuda = FakeCuda(failing=[failing], snapshot=[])
    with (
        pytest.raises(MeasurementError, match="The training step raised Accel") as caught,
        watched(GPU, "The training step", cuda),
    ):
        pass
    assert caught.value.id == "forward-raised"
    assert "device-side assert" in caught.value.cause
    assert len(cuda.calls) == calls


def test_of_the_cpu_nothing_is_asked():
    with watched(torch.device("cpu"), cuda=None) as found:
        pass
    assert (found.peak, found.reserved, found.fragmentation) == (None, None, None)
    assert allocated(torch.device("cpu"), None) is None
    assert allocated(GPU, FakeCuda()) == 1024
