"""Rules that skip a cell, by the smaller batches of its row."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge import units
from torchgauge.analyze.sweep.scaling import overhead, scaling_of
from torchgauge.records.sweep import Cell, CellSettings

GAIN = 0.03
STALE = 2
"""Throughput saturates where this many batches in a row gain less than `GAIN` over the best."""


def left_out(settings: CellSettings, cells: Iterable[Cell]) -> Cell | None:
    """Return the cell that need not be measured, with the rule as its reason; None where it must.

    What a device or a library cannot do at one batch it cannot do at a larger one.
    """
    batch = settings.batch
    if batch is None:
        return None
    row = [
        cell
        for cell in cells
        if cell.settings.series == settings.series and (cell.settings.batch or 0) < batch
    ]
    row.sort(key=lambda cell: cell.settings.batch or 0)
    for cell in row:
        if cell.status == "unsupported":
            return Cell(
                settings=settings, status="unsupported", reason=cell.reason, error=cell.error
            )
        if cell.status == "out of memory":
            reason = f"batch {cell.settings.batch} ran out of memory"
            return Cell(settings=settings, status="skipped", reason=reason)
        if cell.error == "child-timeout":  # the next one would wait as long, and longer
            reason = f"batch {cell.settings.batch} did not end in time"
            return Cell(settings=settings, status="skipped", reason=reason)
    done = [cell for cell in row if cell.done]
    reason = _too_large(batch, done) or _saturated(done)
    return Cell(settings=settings, status="skipped", reason=reason) if reason else None


def _too_large(batch: int, done: list[Cell]) -> str:
    scaling = scaling_of(done) if done else None
    if scaling is None or scaling.memory is None or scaling.capacity is None:
        return ""
    needed = scaling.memory.value_at(batch) + overhead(done)
    if needed <= scaling.capacity:
        return ""
    batches = ", ".join(str(point[0]) for point in scaling.memory.points)
    return (
        f"memory would not fit: about {units.size(needed, 3)} expected from batches {batches}, "
        f"{units.size(scaling.capacity, 3)} there"
    )


def _saturated(done: list[Cell]) -> str:
    rates = [
        (cell.settings.batch, rate, _upper_rate(cell, rate))
        for cell in done
        if (rate := cell.per_second) is not None
    ]
    if len(rates) <= STALE:
        return ""
    best_batch, best_rate, _ = max(rates[:-STALE], key=lambda point: point[1])
    if any(high >= best_rate * (1 + GAIN) for _, _, high in rates[-STALE:]):
        return ""
    larger = " and ".join(str(batch) for batch, _, _ in rates[-STALE:])
    return (
        f"throughput saturates: batches {larger} gain significantly less than "
        f"{units.percent(GAIN)} over "
        f"the {units.rate(best_rate, 'samples', 3)} of batch {best_batch}"
    )


def _upper_rate(cell: Cell, rate: float) -> float:
    """Return the upper end of a rate: on a noisy machine a row must not end by accident."""
    measured = cell.throughput
    if measured is None or measured.interval is None:
        return rate
    return rate * measured.interval.high / measured.calls
