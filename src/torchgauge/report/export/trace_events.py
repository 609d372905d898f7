"""A part of a recorded trace as a trace of its own, with the events' text unchanged.

The file is read once more, chunk by chunk. Names of processes and threads are kept, and so is the
text around the events; they are in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.trace.selection import Selection
from torchgauge.readers.kineto.categories import ARROWS, MODULE_CALL, PYTHON, current_name
from torchgauge.readers.kineto.raw_events import Head, RawEvents
from torchgauge.readers.kineto.times import nanoseconds
from torchgauge.records.trace.events import ABSENT, Events

_METADATA, _MOMENT, _ROW, _ARROW, _OTHER_ARROW = range(5)


def parts(raw: RawEvents, events: Events, selection: Selection) -> Iterator[bytes]:
    """Yield the file's text; `events` are those of the same file, with Python's module calls."""
    between = b"\n"
    is_begun = False
    for _, texts in selected(raw, events, selection):
        if not is_begun:
            yield raw.before
            is_begun = True
        if texts:
            yield between + b",\n".join(texts)
            between = b",\n"
    yield b"\n" + raw.after


def selected(
    raw: RawEvents, events: Events, selection: Selection
) -> Iterator[tuple[list[Head], list[msgspec.Raw]]]:
    """Yield heads and texts of the events that are kept, by chunk of the file."""
    event_filter = _EventFilter(events, selection)
    for batch in raw:
        mask = event_filter.select(batch.heads)
        yield list(compress(batch.heads, mask)), list(compress(batch.texts, mask))


class _EventFilter:
    """Selects the events to keep as they are read."""

    def __init__(self, events: Events, selection: Selection) -> None:
        self._selection = selection
        self._origin = events.metadata.origin
        self._threads = {thread: code for code, thread in enumerate(events.thread.values)}
        flows = events.flows
        self._arrows = {
            (flows.category[index], int(flows.id[index]))
            for index in np.flatnonzero(selection.flows).tolist()
        }
        self._spans = 0  # read so far

    def select(self, heads: list[Head]) -> list[bool]:
        """Return which of the next events are kept."""
        kinds = [_kind(head) for head in heads]
        mask = np.array(kinds, np.int8) == _METADATA
        rows = [index for index, kind in enumerate(kinds) if kind == _ROW]
        mask[rows] = self._selection.spans[self._spans : self._spans + len(rows)]
        self._spans += len(rows)
        moments = [index for index, kind in enumerate(kinds) if kind == _MOMENT]
        if not _timed([heads[index] for index in moments]):
            moments = [index for index in moments if _timed([heads[index]])]
        mask[moments] = self._moment_mask([heads[index] for index in moments])
        for index, kind in enumerate(kinds):
            if kind == _OTHER_ARROW:  # its other end is not known
                mask[index] = self._selection.is_whole
            elif kind == _ARROW:
                key = (current_name(heads[index].cat), heads[index].id)
                mask[index] = key in self._arrows
        return list(map(bool, mask.tolist()))

    def _moment_mask(self, heads: list[Head]) -> np.ndarray:
        time = nanoseconds([head.ts for head in heads]) - self._origin
        codes = (self._threads.get((head.pid, head.tid), ABSENT) for head in heads)
        return self._selection.moments(time, np.fromiter(codes, np.int32, len(heads)))


def _kind(head: Head) -> int:
    """Return what decides whether an event is kept."""
    if head.ph == "M":
        return _METADATA
    if not head.ts:
        return -1
    if head.ph == "X":
        inner = head.cat == PYTHON and not head.name.startswith(MODULE_CALL)
        return _MOMENT if inner else _ROW
    if head.ph in ("s", "t", "f"):
        return _ARROW if head.cat in ARROWS else _OTHER_ARROW
    return _MOMENT


def _timed(heads: list[Head]) -> bool:
    """Whether these events have times; those that the trace reader skips may have none."""
    try:
        nanoseconds([head.ts for head in heads])
    except ValueError:
        return False
    return True


# Processes of rank r have the numbers from (r + 1)·PROCESSES on, in the order in which they appear.
PROCESSES = 1000
# What joins events is a number of a rank's own: rank r's begin at r·NUMBERS.
NUMBERS = 1 << 40
# Kineto orders processes by numbers below this one; a rank's stand together.
_ORDER = 1 << 25
_JOINING = ("correlation", "External id")

_Values = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(_Values).decode
_encode = msgspec.json.encode


class MergedRank(NamedTuple):
    """A rank's events and what is taken of them; `shift` ns put its times on the common clock."""

    number: int
    raw: RawEvents
    events: Events
    selection: Selection
    shift: int


def merged_parts(ranks: Iterable[MergedRank], base: int) -> Iterator[bytes]:
    """Yield the file's text; its times count from `base`, in ns since 1970."""
    numbers: list[int] = []
    yield b'{"schemaVersion":1,"displayTimeUnit":"ms","traceEvents":['
    between = b"\n"
    for rank in ranks:
        numbers.append(rank.number)
        translation = _Translation(rank)
        for heads, texts in selected(rank.raw, rank.events, rank.selection):
            if texts:
                yield between + b",\n".join(translation.translated(heads, texts))
                between = b",\n"
    yield b'\n],"baseTimeNanoseconds":%d,"mergedRanks":%b}\n' % (base, _encode(numbers))


class _Translation:
    """One rank's events, as they are written among those of others."""

    def __init__(self, rank: MergedRank) -> None:
        self._rank = rank
        self._processes: dict[int | str, int] = {}

    def translated(self, heads: list[Head], texts: list[msgspec.Raw]) -> Iterator[bytes]:
        times = nanoseconds([head.ts for head in heads]) + np.int64(self._rank.shift)
        for head, text, time in zip(heads, texts, times.tolist(), strict=True):
            values = _decode(text)
            values["pid"] = _raw(self._process(head.pid))
            if head.ts:
                values["ts"] = msgspec.Raw(_microseconds(time))
            if head.id != "":
                values["id"] = _raw(self._joined(head.id))
            if "args" in values:
                values["args"] = msgspec.Raw(self._arguments(head, values["args"]))
            yield _encode(values)

    def _process(self, pid: int | str) -> int:
        first = (self._rank.number + 1) * PROCESSES
        return self._processes.setdefault(pid, first + len(self._processes))

    def _joined(self, number: int | str) -> int | str:
        if isinstance(number, str):
            return f"{self._rank.number}:{number}"
        return self._rank.number * NUMBERS + number

    def _arguments(self, head: Head, text: msgspec.Raw) -> bytes:
        try:
            arguments = _decode(text)
        except msgspec.MsgspecError:  # no object
            return bytes(text)
        for name in _JOINING:
            if name in arguments and (number := _integer(arguments[name])) > 0:
                arguments[name] = _raw(self._joined(number))
        if head.ph == "M" and head.name == "process_name":
            name = msgspec.json.decode(arguments.get("name", b'""'))
            arguments["name"] = _raw(f"rank {self._rank.number}: {name}")
        if head.ph == "M" and head.name == "process_sort_index":
            order = _integer(arguments.get("sort_index", msgspec.Raw(b"0")))
            place = self._rank.number * _ORDER + min(max(order, 0), _ORDER - 1)
            arguments["sort_index"] = _raw(place)
        return _encode(arguments)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _integer(text: msgspec.Raw) -> int:
    """Return a number, 0 for anything else."""
    try:
        return msgspec.json.decode(text, type=int)
    except msgspec.MsgspecError:
        return 0


def _microseconds(time: int) -> bytes:
    sign, time = (b"-", -time) if time < 0 else (b"", time)
    return b"%b%d.%03d" % (sign, time // 1000, time % 1000)
