"""The tree as stacks: the path to each node, and the node's own time, work or memory."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE
from torchgauge.analyze.timeline.device_time import owners
from torchgauge.analyze.timeline.tree import BUCKETS, OUTSIDE_MODEL, NodeDraft, node_table
from torchgauge.analyze.trace.device_work import STEP
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.analyze.trace.recording import Recording, window
from torchgauge.analyze.trace.selection import Selection
from torchgauge.errors import InputError
from torchgauge.readers.tables import cut_ends
from torchgauge.records.exported import WEIGHTS, Weight
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.events import ABSENT, Rows
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.size import Count

# The row's figure, and its name in messages and files.
_ROWS = {
    "host": ("host", "time on the host"),
    "device": ("device", "time on the device"),
    "flops": ("flops", "FLOPs"),
    "bytes": ("bytes", "bytes of traffic"),
    "memory": ("allocations", "bytes allocated"),
}

Stack = tuple[str, ...]


def label(weight: Weight) -> str:
    """Return a weight's name for people."""
    return _ROWS[weight][1]


def stacks(record: object, weight: Weight) -> list[tuple[Stack, int]]:
    """Return the stacks with a weight of their own, in calling order, and the weights.

    Raises InputError `no-tree`, and `figure-absent` where all weights would be 0.
    """
    if isinstance(record, Count):
        weighted = _counted(record.cost, weight)
    else:
        tree = needed_tree(record)
        if weight == "time":
            weight = "host" if all(row.device is None for row in tree.rows) else "device"
        weighted = _measured(tree, _ROWS[weight][0])
    nonzero = [(stack, own) for stack, own in weighted if own]
    if not nonzero:
        raise InputError(
            f"The record has no {'time' if weight == 'time' else label(weight)}.",
            id="figure-absent",
            cause="It was not measured, or there was none.",
            remedy=f"Choose another of {', '.join(WEIGHTS)}.",
        )
    return nonzero


def needed_tree(record: object) -> Tree:
    """Return the record's tree; raises InputError `no-tree` where it has none."""
    if isinstance(record, Profile | Loop) and record.tree is not None:
        return record.tree
    remedies: dict[type, str] = {
        Profile: 'Profile with detail="operators" or "kernels".',
        Loop: "Record a whole step: see the warnings of the record.",
        Generation: "Tables of layers, operators and kernels need a run without --no-tree.",
        Count: "A count has tables of layers and operators, no kernels.",
    }
    raise InputError(
        "The record has no tree of what ran.",
        id="no-tree",
        cause="It was made without one, or the probe failed.",
        remedy=remedies.get(type(record), "Use the record of a profile or of a loop."),
    )


def _measured(tree: Tree, figure: str) -> Iterator[tuple[Stack, int]]:
    paths: list[Stack] = []
    for row in tree.rows:
        layer = row.kind in ("model", "layer")
        name = layer_label(row.path or row.name, row.type) if layer else row.name
        paths.append(_child_path(paths, row.parent, name))
        yield paths[-1], getattr(row, figure) or 0


def _counted(cost: Cost, weight: Weight) -> Iterator[tuple[Stack, int]]:
    paths: list[Stack] = []
    for node in cost.nodes:
        paths.append(
            _child_path(paths, node.parent, layer_label(node.path or node.name, node.kind))
        )
    for row in sorted(cost.rows, key=lambda row: row.node):
        work: dict[Any, int] = {"flops": row.matmul_flops + row.vector_flops, "bytes": row.bytes}
        yield (*paths[row.node], row.operator), work.get(weight, 0)


def layer_label(name: str, kind: str) -> str:
    """Return a layer's frame: its name, and its class where that says more."""
    return name if kind in ("", name) else f"{name} ({kind})"


def _child_path(paths: Sequence[Stack], parent: int, name: str) -> Stack:
    return (*(paths[parent] if parent >= 0 else ()), name)


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
