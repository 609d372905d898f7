"""What a program marked while a memory snapshot was recorded: ranges over time, and their table."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.snapshot_marks import MarkedRange, ranges
from torchgauge.model.snapshot import DeviceMemory, Snapshot
from torchgauge.report.page_shorter import short
from torchgauge.report.page_tables import Column, table

MOST = 2_000  # ranges of a page
_COLUMNS = (
    Column("name", "marked", "text"),
    Column("begin", "begin", "time"),
    Column("end", "end", "time"),
    Column("length", "length", "time"),
    Column("calls", "overlapping", "count"),
)


def marks(snapshot: Snapshot, device: DeviceMemory, *, timed: bool) -> dict[str, Any] | None:
    """Return the ranges to draw above memory over time, and the table of all; None without any.

    Of more than 2,000 the longest are kept. Of a range whose begin or end was not kept the other
    moment is drawn; none is where the events have no time.
    """
    found = ranges(snapshot.marks, device.device)
    if not found:
        return None
    kept = sorted(sorted(found, key=lambda one: -(_length(one) or 0))[:MOST], key=_moment)
    columns: dict[str, list[Any]] = {
        "name": [short(one.name) for one in kept],
        "begin": [one.begin for one in kept],
        "end": [one.end for one in kept],
        "length": [_length(one) for one in kept],
        "calls": [one.calls if one.calls > 1 else None for one in kept],
    }
    drawn = [_drawn(one) for one in kept if timed and _moment(one) < float("inf")]
    shown = table("what was marked", _COLUMNS, columns)
    return {"drawn": drawn, "table": {**shown, "left": len(found) - len(kept), "nodes": []}}


def _length(one: MarkedRange) -> float | None:
    return None if one.begin is None or one.end is None else one.end - one.begin


def _moment(one: MarkedRange) -> float:
    known = [at for at in (one.begin, one.end) if at is not None]
    return min(known, default=float("inf"))


def _drawn(one: MarkedRange) -> dict[str, Any]:
    name = short(one.name) or "without a name"
    said = f"{name}, begun" if one.end is None else f"{name}, ended" if one.begin is None else name
    ends = [at for at in (one.begin, one.end) if at is not None]
    return {"from": round(ends[0] * 1e9), "to": round(ends[-1] * 1e9), "label": said}
