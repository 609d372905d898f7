"""The ranges a program marked during a memory snapshot: drawn over time, and their table."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.snapshot.marked_ranges import MarkedRange, ranges
from torchgauge.records.snapshot import DeviceMemory, Snapshot
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.page_tables import Column, table

MAX_RANGES = 2_000
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
    marked_ranges = ranges(snapshot.marks, device.device)
    if not marked_ranges:
        return None
    longest = sorted(
        sorted(marked_ranges, key=lambda marked_range: -(_length(marked_range) or 0))[:MAX_RANGES],
        key=_moment,
    )
    columns: dict[str, list[Any]] = {
        "name": [short(marked_range.name) for marked_range in longest],
        "begin": [marked_range.begin for marked_range in longest],
        "end": [marked_range.end for marked_range in longest],
        "length": [_length(marked_range) for marked_range in longest],
        "calls": [
            marked_range.calls if marked_range.calls > 1 else None for marked_range in longest
        ],
    }
    drawn = [
        _drawn(marked_range)
        for marked_range in longest
        if timed and _moment(marked_range) < float("inf")
    ]
    marks_table = table("what was marked", _COLUMNS, columns)
    return {
        "drawn": drawn,
        "table": {**marks_table, "left": len(marked_ranges) - len(longest), "nodes": []},
    }


def _length(marked_range: MarkedRange) -> float | None:
    return (
        None
        if marked_range.begin is None or marked_range.end is None
        else marked_range.end - marked_range.begin
    )


def _moment(marked_range: MarkedRange) -> float:
    times = [time for time in (marked_range.begin, marked_range.end) if time is not None]
    return min(times, default=float("inf"))


def _drawn(marked_range: MarkedRange) -> dict[str, Any]:
    name = short(marked_range.name) or "without a name"
    label = (
        f"{name}, begun"
        if marked_range.end is None
        else f"{name}, ended"
        if marked_range.begin is None
        else name
    )
    ends = [time for time in (marked_range.begin, marked_range.end) if time is not None]
    return {"from": round(ends[0] * 1e9), "to": round(ends[-1] * 1e9), "label": label}
