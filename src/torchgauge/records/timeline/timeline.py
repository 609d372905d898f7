"""The events of a recording, packed for a drawing over time; the page's timeline unpacks them."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

# The kinds of what is drawn, by number.
Kind = Literal[
    "other", "step", "range", "layer", "operator", "call", "python", "compute", "communication",
    "copy", "idle: host", "idle: device", "idle: other", "host", "launch", "pause", "merged",
]  # fmt: skip
Group = Literal["path", "idle", "device", "ranges", "host"]


class Lane(Record, frozen=True, kw_only=True):
    """What is drawn below one heading: the path, a device's idle time, a stream, ranges on it, or a
    thread of the host.

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
