"""A record's memory and GPU parts as the mappings that ModelProfiler returns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torchgauge.compat.results import rows_in_ms
from torchgauge.records.profile import Profile

TRANSFERS = ("memcpy", "memset")


def memory(
    record: Profile, *, allocations: bool, deallocations: bool, snapshots: bool
) -> dict[str, Any]:
    """Return the memory of a call, in bytes, and the requested parts of its course.

    Of more than 2,000 events the record keeps the highest and lowest of equal stretches: rises and
    falls are then "at least".
    """
    usage = record.memory
    if usage is None:
        return {"peak": None, "average": None, "parts": {}}
    fragmentation = usage.fragmentation
    steps = [after.live - before.live for before, after in pairwise(usage.timeline)]
    result: dict[str, Any] = {
        "peak": usage.peak,
        "average": usage.average,
        "per_sample": usage.per_sample,
        "parts": usage.parts,
        "fragmentation": None if fragmentation is None else fragmentation.reserved_unused,
        "method": usage.method,
    }
    if allocations:
        result["allocations"] = _events([step for step in steps if step > 0], bool(steps))
    if deallocations:
        result["deallocations"] = _events([-step for step in steps if step < 0], bool(steps))
    if snapshots:
        result["snapshots"] = [
            {"time": point.time * 1e-6, "bytes": point.live} for point in usage.timeline
        ]
    return result


def _events(sizes: list[int], recorded: bool) -> dict[str, Any]:
    if not recorded:
        return {"count": None, "bytes": None, "largest": None}
    return {"count": len(sizes), "bytes": sum(sizes), "largest": max(sizes, default=0)}


def gpu(record: Profile, *, kernels: bool, transfers: bool, nvtx: bool) -> dict[str, Any]:
    """Return what the GPU did, in ms and bytes, with rows of kernels and copies."""
    rows = [] if record.tree is None else rows_in_ms(record.table("kernels"))
    copies = [row for row in rows if row["name"].lower().startswith(TRANSFERS)]
    latency, system = record.latency, record.system
    used = system.gpus[0] if system is not None and system.gpus else None
    device_time = None if latency is None else latency.device_time
    result: dict[str, Any] = {
        "device": record.target.device,
        "device_time": None if device_time is None else device_time * 1e3,
        "utilization": None if used is None or used.utilization is None else used.utilization.mean,
        "memory": None if used is None or used.memory is None else used.memory.max,
        "nvtx": nvtx,
    }
    if kernels:
        result["kernels"] = [row for row in rows if row not in copies]
    if transfers:
        result["memory_transfers"] = copies
    return result
