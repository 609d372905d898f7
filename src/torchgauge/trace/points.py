"""What a trace says of single moments: allocations and frees, and the ends of arrows."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from torchgauge.model.events import Flows, Integers, MemoryEvents
from torchgauge.trace.categories import FLOWS, current_name
from torchgauge.trace.chunks import CATEGORY, THREAD, Event
from torchgauge.trace.columns import Labels, Numbers, Parts
from torchgauge.trace.tables import Table
from torchgauge.trace.times import Times

_MEMORY = "[memory]"
_ID = attrgetter("id")


class Allocations:
    """Columns of `[memory]` events; `threads` is shared with the spans."""

    def __init__(self, threads: Labels) -> None:
        self.time = Times()
        self._threads = threads
        self._thread = Parts(np.int32)
        self._table = Table(
            "address", "allocation", "allocated", "reserved", "device_type", "allocator", "index"
        )

    def add(self, events: list[Event]) -> None:
        """Append those among the instant events of one chunk."""
        found = [(e, e.args) for e in events if e.name == _MEMORY and e.args is not None]
        kept = [(e, a) for e, a in found if a.allocation != 0]
        self._table.append([a for _, a in kept], np.zeros(0, dtype=np.intp))
        self.time.add([e.ts for e, _ in kept])
        self._thread.append(self._threads.code((THREAD(e) for e, _ in kept), len(kept)))

    def finish(self, origin: int) -> MemoryEvents:
        """Return them, their times from the origin on."""
        columns = self._table.finish()
        del columns["row"]  # they are no spans
        return MemoryEvents(
            time=self.time.finish_from(origin),
            thread=self._thread.finish(),
            size=columns.pop("allocation"),
            device=columns.pop("allocator"),
            **columns,
        )


class Arrows:
    """Columns of the flow events that are understood; `threads` is shared with the spans."""

    def __init__(self, threads: Labels) -> None:
        self.time = Times()
        self._threads = threads
        self._thread = Parts(np.int32)
        self._id = Numbers(np.int64)
        self._begins = Numbers(np.bool_)
        self._category = Labels(meaning=current_name)

    def add(self, events: list[Event]) -> None:
        """Append those among the flow events of one chunk."""
        flows = [e for e in events if type(e.id) is int and e.cat in FLOWS]
        try:
            ids = _ids(flows)
        except OverflowError:
            flows = [e for e in flows if -(2**63) <= e.id < 2**63]  # type: ignore[operator]
            ids = _ids(flows)
        count = len(flows)
        self.time.add([e.ts for e in flows])
        self._thread.append(self._threads.code(map(THREAD, flows), count))
        self._id.append(ids)
        self._begins.append(np.array([e.ph == "s" for e in flows], np.bool_))
        self._category.add(map(CATEGORY, flows), count)

    def finish(self, origin: int) -> Flows:
        """Return them, their times from the origin on."""
        return Flows(
            time=self.time.finish_from(origin),
            thread=self._thread.finish(),
            id=self._id.finish(),
            category=self._category.finish(),
            begins=self._begins.finish(),
        )


def _ids(flows: list[Event]) -> Integers:
    return np.fromiter(map(_ID, flows), np.int64, len(flows))
