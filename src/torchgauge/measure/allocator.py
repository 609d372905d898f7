"""What the device's own allocator says about a step (CUDA); of the CPU's there is none to ask."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from torchgauge.model.memory import Fragmentation


@dataclasses.dataclass
class Allocator:
    """Bytes: highest allocated and reserved while watched, fragmentation at its end."""

    peak: int | None = None
    reserved: int | None = None
    fragmentation: Fragmentation | None = None


@contextlib.contextmanager
def watched(device: torch.device, cuda: Any = torch.cuda) -> Iterator[Allocator]:
    """Watch the caching allocator of a CUDA device; resets its peak statistics."""
    allocator = Allocator()
    if device.type != "cuda":
        yield allocator
        return
    cuda.synchronize(device)
    cuda.reset_peak_memory_stats(device)
    yield allocator
    cuda.synchronize(device)
    allocator.peak = cuda.max_memory_allocated(device)
    allocator.reserved = cuda.max_memory_reserved(device)
    allocator.fragmentation = _fragmentation(cuda.memory_stats(device), _free(cuda, device))


def _free(cuda: Any, device: torch.device) -> list[int]:
    index = cuda.current_device() if device.index is None else device.index
    return [
        block["size"]
        for segment in cuda.memory_snapshot()
        if segment["device"] == index
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]


def _fragmentation(stats: dict[str, int], free: list[int]) -> Fragmentation:
    requested = stats.get("requested_bytes.all.current")
    allocated = stats["allocated_bytes.all.current"]
    return Fragmentation(
        internal=None if requested is None else allocated - requested,
        external=stats.get("inactive_split_bytes.all.current"),
        reserved_unused=stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"],
        largest_free=max(free, default=0),
        total_free=sum(free),
    )
