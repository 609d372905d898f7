"""A step's memory as the device's own allocator counts it (CUDA only)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from torchgauge.measure.forward import running
from torchgauge.records.memory.memory import Fragmentation
from torchgauge.records.record import MeasurementWarning


@dataclasses.dataclass
class Allocator:
    """Bytes: highest allocated and reserved while watched, fragmentation at its end."""

    peak: int | None = None
    reserved: int | None = None
    fragmentation: Fragmentation | None = None
    warnings: tuple[MeasurementWarning, ...] = ()


@contextlib.contextmanager
def watched(
    device: torch.device, subject: str = "The model's forward", cuda: Any = torch.cuda
) -> Iterator[Allocator]:
    """Watch the caching allocator of a CUDA device; empties its cache, resets its statistics.

    So reserved bytes and fragmentation are those of what is watched, not of what ran before.
    Work that fails on the device says so when it is waited for: a MeasurementError that names
    `subject` (see `forward`).
    """
    allocator = Allocator()
    if device.type != "cuda":
        yield allocator
        return
    _wait(device, subject, cuda)
    cuda.empty_cache()
    cuda.reset_peak_memory_stats(device)
    yield allocator
    _wait(device, subject, cuda)
    allocator.peak = cuda.max_memory_allocated(device)
    allocator.reserved = cuda.max_memory_reserved(device)
    try:
        free = _free(cuda, device)
    except RuntimeError as error:  # cudaMallocAsync has no snapshot
        allocator.warnings = (_no_snapshot(error),)
    else:
        allocator.fragmentation = _fragmentation(cuda.memory_stats(device), free)


def allocated(device: torch.device, cuda: Any = torch.cuda) -> int | None:
    """Return the bytes that a CUDA device's allocator has given out; None for the CPU's."""
    return int(cuda.memory_allocated(device)) if device.type == "cuda" else None


def _wait(device: torch.device, subject: str, cuda: Any) -> None:
    with running(str(device), subject):
        cuda.synchronize(device)


def _no_snapshot(error: RuntimeError) -> MeasurementWarning:
    return MeasurementWarning(
        id="fragmentation-unknown",
        message="The CUDA allocator does not list its blocks: fragmentation is unknown.",
        probe="memory",
        cause=f"{type(error).__name__}: {' '.join(str(error).split())}",
        remedy="Unset PYTORCH_ALLOC_CONF's backend:cudaMallocAsync to measure it.",
    )


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
