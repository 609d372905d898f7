"""The events of a recording, packed for a drawing over time; the page's timeline unpacks them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Literal

from torchgauge.records.record import Record

_MOST_BYTES = 64_000_000  # of inflated columns: eight times those of a full page
_COLUMNS = 6
_CONTINUED = bytes(range(128, 256))  # bytes that another of the same number follows

# The kinds of what is drawn, by number.
Kind = Literal[
    "other", "step", "range", "layer", "operator", "call", "python", "compute", "communication",
    "copy", "idle: host", "idle: device", "idle: other", "host", "launch", "pause", "merged",
]  # fmt: skip
Group = Literal["path", "idle", "device", "ranges", "host"]


class Lane(Record, frozen=True, kw_only=True):
    """What is drawn below a heading: the path, idle time, a stream, ranges on it, or a thread.

    `rows` has the number of events in each row, the outermost first; no two events of a row
    overlap by more than the rounding of the file's times. `left_out` counts those nested so deep
    that they have no row.
    """

    name: str
    group: Group
    rows: tuple[int, ...]
    left_out: int = 0


class Timeline(Record, frozen=True, kw_only=True):
    """Events by lane, row and begin; times are whole nanoseconds after the window's begin.

    Attributes:
        duration: Nanoseconds of the window.
        names: The names of events.
        kinds: The kind of each name.
        places: Qualified name of a layer and phase, which events refer to.
        lanes: The lanes from top to bottom.
        events: How many there were, with those in blocks and without those left out.
        columns: Deflated (zlib) sequences of LEB128 numbers, of which `sizes` has the bytes.
        sizes: For each event: the gap after the one before in its row (zigzag), its duration, its
            name, its place (0 without one); for each event of a device's lane the index of its
            launch less that of the one before (zigzag, counted from 1, 0 without one); for each
            block of short events their count and the nanoseconds of all of them.
        version: Of this layout.
    """

    duration: int
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    places: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    events: int
    columns: bytes
    sizes: tuple[int, ...]
    version: int = 1


def disagreements(timeline: Timeline) -> Iterator[str]:
    """Yield what does not fit together in a timeline that was read from a file."""
    if len(timeline.kinds) != len(timeline.names):
        yield "each name has a kind"
    if len(timeline.sizes) != _COLUMNS or min(timeline.sizes) < 0:
        yield f"there are {_COLUMNS} columns"
        return
    total = sum(timeline.sizes)
    try:
        columns = zlib.decompressobj().decompress(timeline.columns, min(total, _MOST_BYTES) + 1)
    except zlib.error:
        columns = b""
    if len(columns) != total:
        yield "the columns are not as long as `sizes` says"
        return
    events = sum(sum(lane.rows) for lane in timeline.lanes)
    on_device = sum(sum(lane.rows) for lane in timeline.lanes if lane.group == "device")
    begin = 0
    for size, count in zip(timeline.sizes, (*[events] * 4, on_device), strict=False):
        if len(columns[begin : begin + size].translate(None, _CONTINUED)) != count:
            yield "a column has another number of events than the lanes"
        begin += size
