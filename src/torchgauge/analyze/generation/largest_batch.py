"""The largest batch whose memory fits at the longest context, by the peaks of measured batches."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import LargestBatch


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
