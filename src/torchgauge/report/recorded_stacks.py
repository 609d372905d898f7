"""A part of a recording as stretches of time, each with the stack that it belongs to.

Stacks are those of the recorded tree: model → layer → operator → kernel. On a device a piece of
work is a stretch; on a thread of the host a stretch is time of a span's own, between those inside.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.attribution import NONE
from torchgauge.analyze.device_time import owners
from torchgauge.analyze.kernel_facts import Facts
from torchgauge.analyze.recorded_tree import STEP
from torchgauge.analyze.recording import Recording
from torchgauge.analyze.selection import Selection
from torchgauge.analyze.tree import BUCKETS, ELSEWHERE, Grown, grow
from torchgauge.analyze.window import window
from torchgauge.model.events import ABSENT, Rows
from torchgauge.report.stacks import Stack, layer_label
from torchgauge.trace.cut_ends import cut_ends

_KEPT = 1024  # stacks, which follow each other closely


class Stretch(NamedTuple):
    """Begin and end in ns from the window's begin, and the frames from the outermost in."""

    begin: int
    end: int
    stack: Stack


class Line(NamedTuple):
    """A stream or a thread: its name, and its stretches, of which no two overlap, in order."""

    name: str
    stretches: Iterator[Stretch]


class Lines:
    """The streams and the threads of a part of a recording."""

    def __init__(self, of: Recording, kept: Selection) -> None:
        self._of = of
        self._kept = kept
        self._origin = window(of.events)[0]
        growth = grow(of.events, of.spans, of.modules.tree, STEP, as_one=True)
        self._nodes = growth.nodes
        self._of_span = growth.of_span
        self._stack = functools.lru_cache(_KEPT)(self._stack_of)
        self._frame = functools.cache(lambda node: _frame(self._nodes[node]))

    def devices(self) -> Iterator[Line]:
        """Yield each stream, and further ones where work of a stream overlaps by rounding."""
        of, work = self._of, self._of.work
        facts = Facts(of.events, work)
        buckets = {one.name: n for n, one in enumerate(self._nodes) if one.kind == "bucket"}
        bucket = {name: buckets[name] for name in BUCKETS}
        elsewhere = bucket[ELSEWHERE]
        owner, _ = owners(of.spans, work, facts, self._of_span, bucket, elsewhere)
        kept = self._kept.spans[work.row] & (of.events.duration[work.row] > 0)
        place = np.stack([facts.device, facts.stream])
        for device, stream in np.unique(place[:, kept], axis=1).T.tolist():
            mine = np.flatnonzero(kept & (facts.device == device) & (facts.stream == stream))
            mine = mine[np.argsort(of.events.start[work.row[mine]], kind="stable")]
            for number, lane in enumerate(_lanes(of, work.row[mine])):
                more = f", work at the same time ({number})" if number else ""
                yield Line(_stream(device, stream) + more, self._pieces(mine[lane], owner, facts))

    def _pieces(self, places: Rows, owner: Rows, facts: Facts) -> Iterator[Stretch]:
        events, rows = self._of.events, self._of.work.row[places]
        begin = events.start[rows] - self._origin
        end = begin + events.duration[rows]
        columns = zip(
            begin.tolist(), end.tolist(), owner[places].tolist(), places.tolist(), strict=True
        )
        for low, high, node, place in columns:
            yield Stretch(low, high, (*self._stack(node), str(facts.name[place])))

    def threads(self) -> Iterator[Line]:
        """Yield each thread on which the host had an operator, a layer or a range."""
        spans, events = self._of.spans, self._of.events
        kept = self._kept.spans[spans.row]
        for code in np.unique(spans.thread[kept]).tolist():
            process, thread = events.thread.values[code]
            name = events.metadata.thread_names.get((process, thread), f"thread {thread}")
            yield Line(name, self._own(np.flatnonzero(spans.thread == code), kept))

    def _own(self, places: Rows, kept: np.ndarray) -> Iterator[Stretch]:
        """Yield what of a thread's time is each span's own; an outer span comes first."""
        spans, origin = self._of.spans, self._origin
        start = spans.nesting.start[places]
        end = cut_ends(start, spans.nesting.end[places] - start, spans.thread[places])
        columns = (start - origin, end - origin, kept[places], self._of_span[places])
        running: list[tuple[int, Stack | None]] = []  # the end of each, and its stack if kept
        now = 0
        for begin, until, wanted, node in zip(*(c.tolist() for c in columns), strict=True):
            while running and running[-1][0] <= begin:
                yield from _stretch(now, *running[-1])
                now = max(now, running.pop()[0])
            if running:
                yield from _stretch(now, begin, running[-1][1])
            now = max(now, begin)
            running.append((until, self._stack(node) if wanted else None))
        while running:
            yield from _stretch(now, *running[-1])
            now = max(now, running.pop()[0])

    def _stack_of(self, node: int) -> Stack:
        found = []
        while node != NONE:  # no call within a call: stacks may be thousands deep
            found.append(self._frame(node))
            node = self._nodes[node].parent
        return tuple(reversed(found))


def _stream(device: int, stream: int) -> str:
    """Return what to call a stream; old recordings may say neither."""
    if ABSENT in (device, stream):
        return "device work of an unknown stream"
    return f"device {device}, stream {stream}"


def _stretch(begin: int, end: int, stack: Stack | None) -> Iterator[Stretch]:
    if stack is not None and end > begin:
        yield Stretch(begin, end, stack)


def _frame(node: Grown) -> str:
    if node.kind in ("model", "layer"):
        return layer_label(node.path or node.name, node.type)
    return node.name


def _lanes(of: Recording, rows: Rows) -> Iterator[Rows]:
    """Yield places of work that does not overlap, as few times as can be."""
    start = of.events.start[rows]
    end = start + of.events.duration[rows]
    if len(rows) and (start[1:] >= end[:-1]).all():
        yield np.arange(len(rows))
        return
    ends: list[tuple[int, int]] = []  # when each lane is free again
    lanes: list[list[int]] = []
    for place, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if ends and ends[0][0] <= low:
            lane = heapq.heapreplace(ends, (high, ends[0][1]))[1]
        else:
            lane = len(lanes)
            heapq.heappush(ends, (high, lane))
            lanes.append([])
        lanes[lane].append(place)
    yield from (np.array(lane) for lane in lanes)
