"""Several ranks' traces as one: on one clock, with a group of processes for each rank.

Everything but the times, the numbers of processes and those that join events (arrows, launches and
their work) is as it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.trace.selection import Selection
from torchgauge.readers.kineto.raw_events import Head, RawEvents
from torchgauge.readers.kineto.times import nanoseconds
from torchgauge.records.trace.events import Events
from torchgauge.report.export.trace_events import selected

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


def parts(ranks: Iterable[MergedRank], base: int) -> Iterator[bytes]:
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
