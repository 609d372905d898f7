"""A part of a recording as stretches of time, each with the stack that it belongs to.

Stacks are those of the recorded tree: model → layer → operator → kernel. On a device a stretch is
one kernel, copy or fill; on a host thread it is self time of a span, between its children.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE
from torchgauge.analyze.timeline.device_time import owners
from torchgauge.analyze.timeline.tree import BUCKETS, OUTSIDE_MODEL, NodeDraft, node_table
from torchgauge.analyze.trace.device_work import STEP
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.analyze.trace.recording import Recording, window
from torchgauge.analyze.trace.selection import Selection
from torchgauge.readers.tables import cut_ends
from torchgauge.records.trace.events import ABSENT, Rows
from torchgauge.report.export.stacks import Stack, layer_label

_CACHED_STACKS = 1024  # neighbouring stretches mostly have the same few stacks


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

    def __init__(self, recording: Recording, selection: Selection) -> None:
        self._recording = recording
        self._selection = selection
        self._origin = window(recording.events)[0]
        table = node_table(
            recording.events, recording.spans, recording.modules.tree, STEP, as_one=True
        )
        self._nodes = table.nodes
        self._span_nodes = table.of_span
        self._copying = table.copying
        self._stack = functools.lru_cache(_CACHED_STACKS)(self._stack_of)
        self._frame = functools.cache(lambda node: _frame(self._nodes[node]))

    def devices(self) -> Iterator[Line]:
        """Yield each stream, and further ones where work of a stream overlaps by rounding."""
        recording, work = self._recording, self._recording.work
        facts = Facts(recording.events, work)
        nodes = enumerate(self._nodes)
        buckets = {node.name: index for index, node in nodes if node.kind == "bucket"}
        bucket = {name: buckets[name] for name in BUCKETS}
        elsewhere_node = bucket[OUTSIDE_MODEL]
        owner, _ = owners(
            recording.spans, work, facts, self._span_nodes, self._copying, bucket, elsewhere_node
        )
        selected = self._selection.spans[work.row] & (recording.events.duration[work.row] > 0)
        streams = np.stack([facts.device, facts.stream])
        for device, stream in np.unique(streams[:, selected], axis=1).T.tolist():
            on_stream = (facts.device == device) & (facts.stream == stream)
            stream_work = np.flatnonzero(selected & on_stream)
            start = recording.events.start[work.row[stream_work]]
            stream_work = stream_work[np.argsort(start, kind="stable")]
            for number, lane in enumerate(_lanes(recording, work.row[stream_work])):
                suffix = f", work at the same time ({number})" if number else ""
                stretches = self._work_stretches(stream_work[lane], owner, facts)
                yield Line(_stream(device, stream) + suffix, stretches)

    def _work_stretches(self, indices: Rows, owner: Rows, facts: Facts) -> Iterator[Stretch]:
        events, rows = self._recording.events, self._recording.work.row[indices]
        begin = events.start[rows] - self._origin
        end = begin + events.duration[rows]
        columns = zip(
            begin.tolist(), end.tolist(), owner[indices].tolist(), indices.tolist(), strict=True
        )
        for low, high, node, index in columns:
            yield Stretch(low, high, (*self._stack(node), str(facts.name[index])))

    def threads(self) -> Iterator[Line]:
        """Yield each thread on which the host had an operator, a layer or a range."""
        spans, events = self._recording.spans, self._recording.events
        selected = self._selection.spans[spans.row]
        for code in np.unique(spans.thread[selected]).tolist():
            process, thread = events.thread.values[code]
            name = events.metadata.thread_names.get((process, thread), f"thread {thread}")
            yield Line(name, self._own_stretches(np.flatnonzero(spans.thread == code), selected))

    def _own_stretches(self, indices: Rows, selected: np.ndarray) -> Iterator[Stretch]:
        """Yield the self time of a thread's spans; an outer span comes first."""
        spans, origin = self._recording.spans, self._origin
        start = spans.nesting.start[indices]
        end = cut_ends(start, spans.nesting.end[indices] - start, spans.thread[indices])
        columns = (start - origin, end - origin, selected[indices], self._span_nodes[indices])
        running: list[tuple[int, Stack | None]] = []  # the end of each, and its stack if kept
        time = 0
        for begin, span_end, is_selected, node in zip(*(c.tolist() for c in columns), strict=True):
            while running and running[-1][0] <= begin:
                yield from _stretch(time, *running[-1])
                time = max(time, running.pop()[0])
            if running:
                yield from _stretch(time, begin, running[-1][1])
            time = max(time, begin)
            running.append((span_end, self._stack(node) if is_selected else None))
        while running:
            yield from _stretch(time, *running[-1])
            time = max(time, running.pop()[0])

    def _stack_of(self, node: int) -> Stack:
        frames = []
        while node != NONE:  # no call within a call: stacks may be thousands deep
            frames.append(self._frame(node))
            node = self._nodes[node].parent
        return tuple(reversed(frames))


def _stream(device: int, stream: int) -> str:
    """Return a stream's name; old recordings may have neither device nor stream."""
    if ABSENT in (device, stream):
        return "device work of an unknown stream"
    return f"device {device}, stream {stream}"


def _stretch(begin: int, end: int, stack: Stack | None) -> Iterator[Stretch]:
    if stack is not None and end > begin:
        yield Stretch(begin, end, stack)


def _frame(node: NodeDraft) -> str:
    if node.kind in ("model", "layer"):
        return layer_label(node.path or node.name, node.type)
    return node.name


def _lanes(recording: Recording, rows: Rows) -> Iterator[Rows]:
    """Yield indices of work that does not overlap, in as few lanes as possible."""
    start = recording.events.start[rows]
    end = start + recording.events.duration[rows]
    if len(rows) and (start[1:] >= end[:-1]).all():
        yield np.arange(len(rows))
        return
    ends: list[tuple[int, int]] = []  # a heap of each lane's end and number
    lanes: list[list[int]] = []
    for index, (low, high) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if ends and ends[0][0] <= low:
            lane = heapq.heapreplace(ends, (high, ends[0][1]))[1]
        else:
            lane = len(lanes)
            heapq.heappush(ends, (high, lane))
            lanes.append([])
        lanes[lane].append(index)
    yield from (np.array(lane) for lane in lanes)
