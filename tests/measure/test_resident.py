"""The resident set and the device's allocator, with the real kernel and with fakes."""

from __future__ import annotations

import sys

import pytest
import torch

from torchgauge.measure import allocator, resident
from torchgauge.model.memory import Fragmentation


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/clear_refs")
def test_a_peak_between_two_readings_is_seen_and_an_older_one_is_not():
    held = torch.ones(50_000_000)  # 200 MB before the watch
    del held
    with resident.watched() as seen:
        held = torch.ones(25_000_000)  # 100 MB, gone at the end of the watch
        del held
    assert seen.peak - seen.before == pytest.approx(100_000_000, rel=0.05)


def test_units_and_fields(tmp_path):
    (tmp_path / "status").write_text("Name:\tx\nVmHWM:\t    300 kB\nVmRSS:\t    200 kB\n")
    with resident.watched(tmp_path) as seen:
        assert (tmp_path / "clear_refs").read_text() == "5"
    assert (seen.before, seen.peak) == (200 * 1024, 300 * 1024)


def test_the_peak_is_never_below_the_start(tmp_path):
    (tmp_path / "status").write_text("VmHWM:\t 199 kB\nVmRSS:\t 200 kB\n")
    with resident.watched(tmp_path) as seen:
        pass
    assert seen.peak == 200 * 1024


def test_where_the_kernel_does_not_tell_the_peak_is_unknown(tmp_path):
    with resident.watched(tmp_path / "absent") as seen:
        pass
    assert seen.before > 0
    assert seen.peak is None


class FakeCuda:
    """torch.cuda of a device that holds two segments, and somebody else's third."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        figures = {"max_memory_allocated": 900, "max_memory_reserved": 2000, "current_device": 1}

        def call(*arguments):
            self.calls.append(name)
            return figures.get(name)

        return call

    def memory_stats(self, device):
        return {
            "allocated_bytes.all.current": 512 + 256,
            "requested_bytes.all.current": 700,
            "reserved_bytes.all.current": 2000,
            "active_bytes.all.current": 800,
            "inactive_split_bytes.all.current": 1100,
        }

    def memory_snapshot(self):
        def block(size, state):
            return {"size": size, "state": state}

        return [
            {"device": 1, "blocks": [block(512, "active_allocated"), block(1000, "inactive")]},
            {"device": 1, "blocks": [block(100, "inactive"), block(256, "active_allocated")]},
            {"device": 0, "blocks": [block(9999, "inactive")]},
        ]


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_cuda_tells_peak_reserved_and_three_kinds_of_fragmentation(name):
    cuda = FakeCuda()
    with allocator.watched(torch.device(name), cuda) as seen:
        assert cuda.calls == ["synchronize", "reset_peak_memory_stats"]
    assert cuda.calls[2:4] == ["synchronize", "max_memory_allocated"]
    assert (seen.peak, seen.reserved) == (900, 2000)
    assert seen.fragmentation == Fragmentation(
        internal=768 - 700,
        external=1100,
        reserved_unused=2000 - 800,
        largest_free=1000,
        total_free=1100,
    )


def test_the_cpu_has_no_allocator_to_ask():
    cuda = FakeCuda()
    with allocator.watched(torch.device("cpu"), cuda) as seen:
        pass
    assert cuda.calls == []
    assert (seen.peak, seen.reserved, seen.fragmentation) == (None, None, None)
