"""Why a cell need not be measured, from the smaller batches of its row."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge import units
from torchgauge.analyze.scaling import overhead, scaling_of
from torchgauge.model.sweep import Cell, CellSettings

GAIN = 0.03
STALE = 2
"""Throughput saturates where so many batches in a row bring less than `GAIN` over the best."""


def why_skip(settings: CellSettings, cells: Iterable[Cell]) -> str:
    """Return the reason to leave a cell out, with its rule; "" where it is to be measured."""
    batch = settings.batch
    if batch is None:
        return ""
    row = [
        cell
        for cell in cells
        if cell.settings.series == settings.series and (cell.settings.batch or 0) < batch
    ]
    row.sort(key=lambda cell: cell.settings.batch or 0)
    for cell in row:
        if cell.status == "unsupported":
            return f"unsupported at batch {cell.settings.batch} already"
        if cell.status == "out of memory":
            return f"batch {cell.settings.batch} ran out of memory"
    done = [cell for cell in row if cell.done]
    return _too_large(batch, done) or _saturated(done)


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
    rates = [(cell.settings.batch, rate) for cell in done if (rate := cell.per_second) is not None]
    if len(rates) <= STALE:
        return ""
    at, most = max(rates[:-STALE], key=lambda pair: pair[1])
    if any(rate >= most * (1 + GAIN) for _, rate in rates[-STALE:]):
        return ""
    larger = " and ".join(str(batch) for batch, _ in rates[-STALE:])
    return (
        f"throughput saturates: batches {larger} bring less than {units.percent(GAIN)} over the "
        f"{units.rate(most, 'samples')} of batch {at}"
    )
