"""A step's memory as the device's allocator counts it, or as the process grows."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import sys
from collections.abc import Iterator
from typing import Any

import torch

from torchgauge.analyze.onnx.graph_size import graph_size
from torchgauge.device.counters import watched_resident
from torchgauge.errors import MeasurementError
from torchgauge.measure.forward import running
from torchgauge.measure.step import prepared
from torchgauge.records.memory.memory import Fragmentation, Memory
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.tensors import nbytes
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel, check_host

METHOD = (
    "growth of the process's resident set from before the file was opened, in a process that had "
    "run it before, to its highest in two calls; parameters, inputs, outputs and buffers (with "
    "constants that may be parameters) by their shapes, the rest is workspace: packed weights, the "
    "runtime's arena, what the system has not taken back"
)


def measure(placement: Placement) -> Memory:
    """Close the model, open it again and call it twice; return by how much the process grew.

    Raises what opening and calling it raise; MeasurementError `memory-unreadable`,
    `provider-unread`.
    """
    model, graph = placement.model, placement.target.graph
    check_host(model, "memory")
    assert isinstance(model, RuntimeModel)  # noqa: S101 - others have tensors that are watched
    with prepared(placement) as step:
        step()
        model.close()
        _give_back()
        with watched_resident() as process:
            model.open()
            step()
            outputs = step()
    input_bytes = sum(nbytes(tensor) for _, tensor in placement.inputs.tensors(arrays=True))
    output_bytes = sum(tensor.nbytes for tensor in tensors_in(outputs))
    assert graph is not None  # noqa: S101 - others have tensors that are watched
    stored = sum(weight.bytes for weight in graph.initializers if not weight.shared)
    size = graph_size(graph)
    parameter_bytes = 0 if size is None else size.parameter_bytes
    counted = input_bytes + output_bytes + stored
    if process.peak is None or process.before is None:
        raise MeasurementError(
            "The memory of the process cannot be read here.",
            id="memory-unreadable",
            cause="The highest resident set since a moment is known on Linux alone, by /proc/self.",
            remedy="Measure it on Linux, outside of what hides /proc.",
        )
    # The system may have kept pages that were freed: what must be there was there.
    peak = max(process.peak - process.before, counted)
    return Memory(
        peak=peak,
        average=None,
        parameters=parameter_bytes,
        inputs=input_bytes,
        outputs=output_bytes,
        buffers=stored - parameter_bytes,
        activations=0,
        gradients=0,
        optimizer=0,
        workspace=peak - counted,
        step="inference",
        device=placement.device,
        method=METHOD,
        rss_before=process.before,
        rss_peak=process.peak,
    )


def _give_back() -> None:
    """Give freed memory back to the system, where its C library can."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


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
