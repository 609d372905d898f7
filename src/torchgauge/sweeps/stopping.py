"""Why a cell need not be measured, from the smaller batches of its row."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge import units
from torchgauge.analyze.scaling import overhead, scaling_of
from torchgauge.model.sweep import Cell, CellSettings

GAIN = 0.03
STALE = 2
"""Throughput saturates where so many batches in a row bring less than `GAIN` over the best."""


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
    known = scaling_of(done) if done else None
    if known is None or known.memory is None or known.capacity is None:
        return ""
    needed = known.memory.at(batch) + overhead(done)
    if needed <= known.capacity:
        return ""
    batches = ", ".join(str(point[0]) for point in known.memory.points)
    return (
        f"memory would not fit: about {units.size(needed, 3)} expected from batches {batches}, "
        f"{units.size(known.capacity, 3)} there"
    )


def _saturated(done: list[Cell]) -> str:
    rates = [
        (cell.settings.batch, rate, _at_most(cell, rate))
        for cell in done
        if (rate := cell.per_second) is not None
    ]
    if len(rates) <= STALE:
        return ""
    at, most, _ = max(rates[:-STALE], key=lambda one: one[1])
    if any(high >= most * (1 + GAIN) for _, _, high in rates[-STALE:]):
        return ""
    larger = " and ".join(str(batch) for batch, _, _ in rates[-STALE:])
    return (
        f"throughput saturates: batches {larger} surely bring less than {units.percent(GAIN)} over "
        f"the {units.rate(most, 'samples', 3)} of batch {at}"
    )


def _at_most(cell: Cell, rate: float) -> float:
    """Return the upper end of a rate: on a noisy machine a row must not end by accident."""
    found = cell.throughput
    if found is None or found.interval is None:
        return rate
    return rate * found.interval.high / found.calls
