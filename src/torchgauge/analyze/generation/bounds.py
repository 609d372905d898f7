"""Lower bounds of decode steps, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from torchgauge.analyze.work.bottleneck import IMPOSSIBLE
from torchgauge.analyze.work.roof_quality import disturbed
from torchgauge.records.generation.cell import GenerationCell, StageWork
from torchgauge.records.generation.generation import LargestBatch
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


def largest_batch(cells: Iterable[GenerationCell], capacity: int | None) -> LargestBatch | None:
    """Return the largest batch that is expected to fit into `capacity` bytes.

    Of the cells of one prompt, number of beams and kind of cache whose peak was measured at two
    batches at least: those of the longest prompt, of the most batches among these. The peak of the
    last step grows by so many bytes with each prompt of the batch: the line through the smallest
    and the largest batch, which a peak between them must not lie above. A batch that ran out of
    memory bounds it from above, one that was done from below. None where no two batches were
    measured, or a larger one takes no more.
    """
    cells = tuple(cells)
    rows: dict[tuple[int, int, str], dict[int, int]] = {}
    for cell in cells:
        if cell.done and cell.memory is not None and not cell.assisted:
            rows.setdefault(_row(cell), {})[cell.batch] = cell.memory.peak
    rows = {row: peaks for row, peaks in rows.items() if len(peaks) > 1}
    if not capacity or not rows:
        return None
    row = max(rows, key=lambda row: (row[0], len(rows[row])))
    peaks = rows[row]
    fixed, per_batch = _line(peaks)
    if per_batch < 1:
        return None
    row_cells = [cell for cell in cells if _row(cell) == row]
    done = max(cell.batch for cell in row_cells if cell.done)
    failed = min((c.batch for c in row_cells if c.status == "out of memory"), default=None)
    fits = max(0, (capacity - fixed) // per_batch)
    if failed is not None:
        fits = min(fits, failed - 1)
    prompt, beams, _ = row
    return LargestBatch(
        context=prompt + max(1, *(cell.new_tokens for cell in row_cells)) - 1,
        capacity=capacity,
        fixed=fixed,
        per_sequence=-(-per_batch // beams),
        largest=max(fits, done),
        done=done,
        failed=failed,
    )


def _row(cell: GenerationCell) -> tuple[int, int, str]:
    return cell.prompt, cell.beams, cell.cache_kind


def _line(peaks: dict[int, int]) -> tuple[int, int]:
    """Return (fixed, per batch) in whole bytes, so that no measured peak lies above the line."""
    low, high = min(peaks), max(peaks)
    per_batch = -(-(peaks[high] - peaks[low]) // (high - low))
    return max(0, *(peak - per_batch * batch for batch, peak in peaks.items())), per_batch
