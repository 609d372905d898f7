"""Instant events of a trace: allocations and frees, ends of arrows, begins and ends of spans."""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter

import msgspec
import numpy as np

from torchgauge.readers.columns import Numbers, Parts
from torchgauge.readers.kineto.categories import Heads
from torchgauge.readers.kineto.decoding import Event
from torchgauge.readers.kineto.times import Times, nanoseconds
from torchgauge.readers.tables import Table
from torchgauge.records.trace.events import Codes, Flows, Integers, MemoryEvents

_ID = attrgetter("id")
_DIGITS = 18  # that an int64 holds
_DEEPEST = 1000  # how far up an end is looked for: files of strangers may have any


class Allocations:
    """Columns of `[memory]` events."""

    def __init__(self, heads: Heads) -> None:
        self._head_index = heads
        self.time = Times()
        self._heads = Parts(np.int32)
        self._table = Table(
            "address", "allocation", "allocated", "reserved", "device_type", "allocator", "index"
        )

    def add(self, events: list[Event], heads: Codes) -> None:
        """Append the allocations of one chunk; one without a size is left out."""
        sized = [i for i, e in enumerate(events) if e.args is not None and e.args.allocation]
        sized_events = [events[i] for i in sized]
        self._table.append([e.args for e in sized_events], np.zeros(0, dtype=np.intp))  # type: ignore[misc]
        self.time.add([e.ts for e in sized_events])
        self._heads.append(heads[sized])

    def finish(self, origin: int) -> MemoryEvents:
        """Return them, their times from the origin on."""
        columns = self._table.finish()
        del columns["row"]  # they are no spans
        return MemoryEvents(
            time=self.time.finish_from(origin),
            thread=self._head_index.threads(self._heads.finish()).codes,
            size=columns.pop("allocation"),
            device=columns.pop("allocator"),
            **columns,
        )


class Arrows:
    """Columns of the flow events that are understood."""

    def __init__(self, heads: Heads) -> None:
        self._head_index = heads
        self.time = Times()
        self._heads = Parts(np.int32)
        self._id = Numbers(np.int64)

    def add(self, events: list[Event], heads: Codes) -> None:
        """Append the arrow ends of one chunk whose ids are numbers."""
        for event in events:
            if isinstance(event.id, str):  # as torch_npu writes them
                event.id = _number(event.id)
        numbered = [i for i, e in enumerate(events) if type(e.id) is int]
        try:
            ids = _ids([events[i] for i in numbered])
        except OverflowError:
            numbered = [i for i in numbered if -(2**63) <= events[i].id < 2**63]  # type: ignore[operator]
            ids = _ids([events[i] for i in numbered])
        self.time.add([events[i].ts for i in numbered])
        self._heads.append(heads[numbered])
        self._id.append(ids)

    def finish(self, origin: int) -> Flows:
        """Return them, their times from the origin on."""
        heads = self._heads.finish()
        return Flows(
            time=self.time.finish_from(origin),
            thread=self._head_index.threads(heads).codes,
            id=self._id.finish(),
            category=self._head_index.column("cat", heads),
            begins=self._head_index.column("ph", heads).where(lambda phase: phase == "s"),
        )


class Pairs:
    """Spans whose begin and end are events of their own (phases B and E), as tlparse writes them.

    An end belongs to the latest open begin of its name on its thread, or without a name to the
    latest of all.
    """

    def __init__(self) -> None:
        self._open: defaultdict[tuple[int | str, int | str], list[Event]] = defaultdict(list)
        self._begins: list[Event] = []
        self._ends: list[Event] = []
        self._lost = 0

    def add(self, events: list[Event]) -> None:
        """Join the begins and ends of one chunk with those before."""
        for event in events:
            stack = self._open[event.pid, event.tid]
            if event.ph == "B":
                stack.append(event)
                continue
            for back, begin in enumerate(stack[: -_DEEPEST - 1 : -1], 1):
                if event.name in ("", begin.name):
                    self._begins.append(stack.pop(-back))
                    self._ends.append(event)
                    break
            else:
                self._lost += 1

    @property
    def unpaired(self) -> int:
        """How many begins and ends have no other."""
        return self._lost + sum(map(len, self._open.values()))

    def spans(self) -> list[Event]:
        """Return the spans as events of their own, with the arguments of their ends."""
        begin = nanoseconds([event.ts for event in self._begins])
        length = np.maximum(nanoseconds([event.ts for event in self._ends]) - begin, 0)
        for event, end, duration in zip(self._begins, self._ends, length.tolist(), strict=True):
            event.ph, event.args = "X", end.args or event.args
            event.dur = msgspec.Raw(b"%d.%03d" % divmod(duration, 1000))
        return self._begins


def _number(text: str) -> int | str:
    """Return the number that a text is, else the text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text


def _ids(events: list[Event]) -> Integers:
    return np.fromiter(map(_ID, events), np.int64, len(events))
