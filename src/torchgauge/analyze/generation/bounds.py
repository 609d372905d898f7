"""The least time of a prefill or a decode step under a device's roofs, and how near it comes."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from torchgauge.analyze.work.bottleneck import IMPOSSIBLE
from torchgauge.analyze.work.roof_quality import disturbed
from torchgauge.records.generation.cell import StageWork
from torchgauge.records.work.roofline import Roofs


def bounded(
    work: StageWork,
    roofs: Roofs | None,
    dtype: str,
    seconds: float | None,
    *,
    tf32: bool = False,
) -> StageWork:
    """Return the work with its lower bound, what sets that, and the share that `seconds` reach.

    The bound is the longer of two times: all operations at the peak of `dtype`, and all bytes.
    Weights and cache are read again by each forward, so they move at the bandwidth of a working set
    of their size; activations may stay in the nearest cache, and move at the highest. What sets the
    bound is None where neither moves nor computes anything. Nothing is known of it where a peak,
    a bandwidth or a part of the work is unknown, nor under roofs that were measured beside other
    work and that the time shows to be far too low.
    """
    compute = _compute_time(work, roofs, dtype, tf32)
    memory = _memory_time(work, roofs)
    if roofs is None or compute is None or memory is None:
        return replace(work, lower_bound=None, bound=None, reached=None)
    bound = max(compute, memory)
    if seconds and disturbed(roofs) and bound > IMPOSSIBLE * seconds:
        return replace(work, lower_bound=None, bound=None, reached=None)
    sets: Literal["compute", "memory"] = "compute" if compute > memory else "memory"
    return replace(
        work,
        lower_bound=bound,
        bound=sets if bound else None,
        reached=bound / seconds if seconds and bound else None,
    )


def _compute_time(work: StageWork, roofs: Roofs | None, dtype: str, tf32: bool) -> float | None:
    if roofs is None or work.flops is None:
        return None
    peak = roofs.peak(dtype, tf32=tf32)
    if peak:
        return work.flops / peak
    # Fewer operations than bytes are never what takes the time.
    return 0.0 if work.bytes is not None and work.flops <= work.bytes else None


def _memory_time(work: StageWork, roofs: Roofs | None) -> float | None:
    if roofs is None or work.weight_bytes is None or work.cache_bytes is None:
        return None
    stored_bytes = work.weight_bytes + work.cache_bytes
    far, near = roofs.bandwidth_at(stored_bytes), roofs.bandwidth_at(0)
    if not far or not near or work.activation_bytes is None:
        return None
    return stored_bytes / far + work.activation_bytes / near
