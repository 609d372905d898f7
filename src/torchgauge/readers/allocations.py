"""Columns of every allocation and free in a Kineto trace, and of the spans around them.

Order. `Ev Idx` counts the events of one thread after those of another, so it orders one thread
only: with a backward thread it puts frees before their allocations. Timestamps order all of them;
`Ev Idx` decides between equal ones (old traces have whole microseconds).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge.errors import InputError
from torchgauge.readers.unpacking import PackingError, open_trace, unpacked

Column = NDArray[np.int64]

_OPERATORS = ("cpu_op", "Operator")
_ABSENT = msgspec.Raw()
_CHUNK_SIZE = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Allocations:
    """Allocations (`size` > 0) and frees (`size` < 0) in the order in which they happened.

    `time` in integer nanoseconds from the earliest timestamp of the trace, `size` in bytes,
    `thread` an index into the trace's threads. `device_type` is torch's number: 0 the CPU, 1 CUDA.
    """

    time: Column
    size: Column
    address: Column
    device_type: Column
    device_id: Column
    thread: Column

    def on_device(self, device_type: int, device_id: int) -> Allocations:
        """Return the allocations and frees of one device; the CPU's id is −1."""
        chosen = (self.device_type == device_type) & (self.device_id == device_id)
        return Allocations(**{name: column[chosen] for name, column in vars(self).items()})


@dataclasses.dataclass(frozen=True, eq=False)
class Ranges:
    """Stretches of one thread's time: `start` and `end` in ns as above, sorted by start."""

    name: tuple[str, ...]
    start: Column
    end: Column
    thread: Column


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryTrace:
    """Memory events of a recording and the ranges around them.

    `operators` are the outermost operators of each thread; `marks` and `layers` the ranges whose
    names start with the prefixes that were asked for; `threads` the (pid, tid) that `thread`
    columns index.
    """

    allocations: Allocations
    operators: Ranges
    marks: Ranges
    threads: tuple[tuple[int | str, int | str], ...]
    layers: Ranges


class _Memory(msgspec.Struct, gc=False):
    """The arguments of a `[memory]` event."""

    size: int = msgspec.field(name="Bytes")
    address: int = msgspec.field(name="Addr", default=0)
    device_type: int = msgspec.field(name="Device Type", default=0)
    device_id: int = msgspec.field(name="Device Id", default=-1)
    index: int = msgspec.field(name="Ev Idx", default=-1)


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    ph: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = _ABSENT  # of many shapes: decoded for memory events alone


class _File(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents")


_decode_file = msgspec.json.Decoder(_File).decode
_decode_events = msgspec.json.Decoder(list[_Event]).decode
_decode_memory = msgspec.json.Decoder(_Memory).decode


def read(
    source: Path | bytes, *, marks: str | None = None, layers: str | None = None
) -> MemoryTrace:
    """Read an exported Kineto trace (.json or .json.gz, or its bytes).

    Ranges whose names start with `marks`, and those with `layers`, are no operators.
    Raises InputError `trace-unreadable` where it is no trace, or is cut off, and what opening and
    unpacking raise.
    """
    name = str(source) if isinstance(source, Path) else "The recording"
    try:
        return _trace(_events(source, name), marks, layers)
    except (ValueError, ArithmeticError, RecursionError, OSError, PackingError) as error:
        raise InputError(
            f"{name} cannot be read as a Kineto trace.",
            id="trace-unreadable",
            cause=str(error),
            remedy="Export it again with torch.profiler's export_chrome_trace.",
        ) from error


def _events(source: Path | bytes, name: str) -> list[_Event]:
    with open_trace(source) as file:
        data = b"".join(unpacked(file, name, _CHUNK_SIZE))
    if data.lstrip()[:1] == b"[":
        return _decode_events(data)
    return _decode_file(data).events


def _trace(events: list[_Event], marks: str | None, layers: str | None) -> MemoryTrace:
    timed = [e for e in events if e.ph in ("X", "i", "I")]
    origin = min((e.ts for e in timed), default=0.0)
    threads: dict[tuple[int | str, int | str], int] = {}
    memory, operators, marked, called = [], [], [], []
    for event in timed:
        if event.name == "[memory]":
            memory.append(event)
        elif event.ph != "X":
            continue
        elif marks is not None and event.name.startswith(marks):
            marked.append(event)
        elif layers is not None and event.name.startswith(layers):
            called.append(event)
        elif event.cat in _OPERATORS:
            operators.append(event)
    for event in memory + operators + marked + called:
        threads.setdefault((event.pid, event.tid), len(threads))
    return MemoryTrace(
        allocations=_allocations(memory, origin, threads),
        operators=_outermost(_ranges(operators, origin, threads)),
        marks=_ranges(marked, origin, threads),
        threads=tuple(threads),
        layers=_ranges(called, origin, threads),
    )


def _nanoseconds(microseconds: Iterable[float], origin: float) -> Column:
    # The origin goes first: nanoseconds since 1970 are more digits than a float64 has.
    values = np.fromiter(microseconds, np.float64) - origin
    return np.rint(values * 1000).astype(np.int64)


def _integers(values: Iterable[Any]) -> Column:
    return np.fromiter(values, np.int64)


def _allocations(
    events: list[_Event], origin: float, threads: dict[tuple[int | str, int | str], int]
) -> Allocations:
    arguments = [_decode_memory(e.args) for e in events]
    time = _nanoseconds((e.ts for e in events), origin)
    order = np.lexsort((_integers(a.index for a in arguments), time))
    return Allocations(
        time=time[order],
        size=_integers(a.size for a in arguments)[order],
        address=_integers(a.address for a in arguments)[order],
        device_type=_integers(a.device_type for a in arguments)[order],
        device_id=_integers(a.device_id for a in arguments)[order],
        thread=_integers(threads[e.pid, e.tid] for e in events)[order],
    )


def _ranges(
    events: list[_Event], origin: float, threads: dict[tuple[int | str, int | str], int]
) -> Ranges:
    start = _nanoseconds((e.ts for e in events), origin)
    duration = _nanoseconds((e.dur for e in events), 0.0)
    order = np.lexsort((-duration, start))
    return Ranges(
        name=tuple(events[i].name for i in order),
        start=start[order],
        end=(start + duration)[order],
        thread=_integers(threads[e.pid, e.tid] for e in events)[order],
    )


def _outermost(ranges: Ranges) -> Ranges:
    """Keep the ranges that no earlier range of their thread still covers at their start."""
    keep = np.zeros(len(ranges.start), dtype=bool)
    for thread in np.unique(ranges.thread):
        rows = np.flatnonzero(ranges.thread == thread)
        covered = np.maximum.accumulate(ranges.end[rows])
        keep[rows[:1]] = True
        keep[rows[1:]] = ranges.start[rows[1:]] >= covered[:-1]
    chosen = np.flatnonzero(keep)
    return Ranges(
        name=tuple(ranges.name[i] for i in chosen),
        start=ranges.start[chosen],
        end=ranges.end[chosen],
        thread=ranges.thread[chosen],
    )
