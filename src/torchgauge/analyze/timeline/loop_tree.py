"""The nodes of a recorded loop: its steps, its marks, its data loading, its communication.

Steps are told apart by points, since a loop that nobody edited has no span around a step: step k
lasts from point k to point k + 1, whose spans are empty and named by STEP.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from torchgauge.analyze.host.host_delays import ALLOCATIONS
from torchgauge.analyze.lanes.recorded_lanes import step_timeline
from torchgauge.analyze.timeline.attribution import MARK, NONE, OUTSIDE, Spans, attribute
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.device_time import COMMUNICATION, Intervals, union
from torchgauge.analyze.timeline.steps import Steps, marked
from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL, NodeDraft, NodeTable, node_table
from torchgauge.analyze.work.event_costs import event_costs
from torchgauge.analyze.work.recorded_products import recorded_products
from torchgauge.analyze.work.utilization import Products
from torchgauge.records.timeline.tree import Timeline
from torchgauge.records.trace.events import ABSENT, Coded, Events, Integers
from torchgauge.records.trace.host_delay import LOADER, LOADING, Cause, HostDelay

STEP = re.compile(r"tg@\d+")
_COMMUNICATION_PREFIXES = ("gloo:", "nccl:", "mpi:", "ucc:", "c10d::")


@dataclasses.dataclass
class LoopTable:
    """The nodes of a loop and, by step in ns: its communication, and what it did at once.

    `communication`: when any was under way; `waiting`: when nothing else was done by the thread
    that steps; `concurrent`: what other threads did while that one was at work too. `delays` are
    the waits for data loaders and for memory of a device, of all steps. `timeline` is of one of the
    steps. `products` are the
    FLOPs of each step.
    """

    table: NodeTable
    communication: Integers
    waiting: Integers
    concurrent: Integers
    delays: tuple[HostDelay, ...] = ()
    timeline: Timeline | None = None
    products: tuple[Products, ...] = ()


def loop_table(events: Events, tree: CallTree, marks: Sequence[str]) -> LoopTable:
    """Return the nodes of the recorded steps; `marks` are the names of the spans `tg:N`.

    A mark outside of layers is a bucket of its name, and what it holds is below it but for layers
    and what has a bucket already. Communication on other threads counts where the stepping thread
    waits for it: then the nodes' `host` adds up to the step, but for `concurrent`.
    """
    events = _windows(events)
    spans = attribute(events, tree)
    table = node_table(events, spans, tree, STEP)
    names = events.name.take(spans.row)
    steps = marked(
        names.where(lambda name: STEP.fullmatch(name) is not None),
        spans.nesting.start,
        spans.nesting.end,
    )
    talk = names.where(lambda name: name.startswith(_COMMUNICATION_PREFIXES))
    communication, waiting = _communication(table, spans, steps, talk)
    _into_buckets(table, marks)
    length = steps.end - steps.begin
    mark_names = {f"tg:{number}": mark for number, mark in enumerate(marks)}
    return LoopTable(
        table,
        communication,
        waiting,
        table.host.sum(axis=0) - length,
        (*_loading(names, spans, steps), *_allocations(events, steps)),
        step_timeline(events, spans, tree, STEP, mark_names),
        tuple(recorded_products(events, spans, event_costs(events, spans), steps)),
    )


def _loading(names: Coded[str], spans: Spans, steps: Steps) -> Iterator[HostDelay]:
    """Yield the waits for data loaders, by the class of their iterator."""
    inside = steps.containing(spans.nesting.start) != NONE
    rows = np.flatnonzero(inside & names.where(lambda name: name.startswith(LOADER)))
    return _delays(LOADING, names.take(rows), spans.nesting.total_time[rows], steps)


def _allocations(events: Events, steps: Steps) -> Iterator[HostDelay]:
    """Yield the calls that get memory from a device or give it back, by their names."""
    is_allocation = events.name.where(lambda name: ALLOCATIONS.fullmatch(name) is not None)
    rows = np.flatnonzero(is_allocation & (steps.containing(events.start) != NONE))
    return _delays("allocation", events.name.take(rows), events.duration[rows], steps)


def _delays(cause: Cause, names: Coded[str], times: Integers, steps: Steps) -> Iterator[HostDelay]:
    for code in np.unique(names.codes).tolist():
        of_name = times[names.codes == code]
        yield HostDelay(
            cause=cause,
            name=names.values[code],
            calls=len(of_name),
            time=int(of_name.sum()) * 1e-9,
            longest=int(of_name.max()) * 1e-9,
            steps=len(steps),
            duration=int((steps.end - steps.begin).sum()) * 1e-9,
        )


def _windows(events: Events) -> Events:
    """Return the events with each point made the step that begins there; the last is left out.

    A span that is open at a point ends there: an optimizer's step ends a step of the loop from
    within, and a span around the whole loop is none of a step.
    """
    is_point = events.name.where(lambda name: STEP.fullmatch(name) is not None)
    points = np.flatnonzero(is_point)
    points = points[np.argsort(events.start[points], kind="stable")]
    start, duration = events.start.copy(), events.duration.copy()
    codes = events.category.codes.copy()
    if len(points):
        begin = events.start[points]
        end = begin + events.duration[points]
        on_thread = (events.thread.codes == events.thread.codes[points[0]]) & ~is_point
        # Device work has threads of its own, and what is a point in no trace: only spans.
        rows = np.flatnonzero(on_thread)
        later = np.searchsorted(begin, start[rows], side="right")
        cut = later < len(points)
        rows, later = rows[cut], later[cut]
        duration[rows] = np.minimum(duration[rows], end[later] - start[rows])
        start[points[:-1]] = end[:-1]
        duration[points[:-1]] = np.diff(end)
        codes[points[-1]] = ABSENT
    category = Coded(codes, events.category.values)
    return dataclasses.replace(events, start=start, duration=duration, category=category)


def _communication(
    table: NodeTable, spans: Spans, steps: Steps, talk: np.ndarray
) -> tuple[Integers, Integers]:
    """Return the time of communication and of waiting for it by step, and move the latter.

    Communication that another thread carries out beside the work of the stepping one is not time
    of the step; what is left of it comes off the time in which that thread did nothing else.
    """
    nesting, parent = spans.nesting, spans.nesting.parent
    total, waiting = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    if not talk.any():
        return total, waiting
    talking = np.flatnonzero(talk)
    step_of = steps.containing(nesting.start[talking])
    outside_model = next(n for n, node in enumerate(table.nodes) if node.name == OUTSIDE_MODEL)
    for step, step_span in enumerate(steps.span.tolist()):
        window = (int(steps.begin[step]), int(steps.end[step]))
        step_spans = talking[step_of == step]
        on_own_thread = spans.thread[step_spans] == spans.thread[step_span]
        own, other_threads = step_spans[on_own_thread], step_spans[~on_own_thread]
        children = np.flatnonzero(parent == step_span)
        busy = union(nesting.start[children], nesting.end[children], window)
        other_busy = union(nesting.start[other_threads], nesting.end[other_threads], window)
        total[step] = union(nesting.start[step_spans], nesting.end[step_spans], window).length
        exposed = other_busy.outside(busy)
        waiting[step] = exposed.length + union(nesting.start[own], nesting.end[own], window).length
        table.host[outside_model, step] -= exposed.length
        _move_waits(table, spans, other_threads[parent[other_threads] == NONE], step, exposed)
    return total, waiting


def _move_waits(
    table: NodeTable, spans: Spans, waiting_spans: Integers, step: int, exposed: Intervals
) -> None:
    """Give spans of other threads the time in which they were waited for, to the first of two."""
    remaining = exposed
    for span in waiting_spans.tolist():
        begin, end = int(spans.nesting.start[span]), int(spans.nesting.end[span])
        exposed_within = remaining.within(begin, end)
        remaining = remaining.outside(Intervals(np.array([begin]), np.array([end])))
        table.host[table.of_span[span], step] += exposed_within - int(spans.nesting.self_time[span])


def _into_buckets(table: NodeTable, marks: Sequence[str]) -> None:
    """Make buckets of marks and of the data loader's spans; put communication into its own."""
    nodes = table.nodes
    number = {node.name: index for index, node in enumerate(nodes) if node.kind == "bucket"}
    outside, talk = number[OUTSIDE_MODEL], number[COMMUNICATION]
    moved = np.arange(len(nodes))
    free = {outside}  # what is directly in one of these is in no layer
    for index, node in enumerate(nodes):
        if node.kind not in ("operator", "kernel"):
            continue
        node.parent = int(moved[node.parent])
        label = _label(node.name, marks)
        if node.kind == "kernel" or node.parent not in free or node.phase != OUTSIDE:
            node.name = label or node.name
        elif node.name.startswith(_COMMUNICATION_PREFIXES):
            node.parent = talk
        elif label is not None:
            into = number.setdefault(label, index)
            moved[index] = into
            free.add(into)
            if into == index:
                nodes[index] = NodeDraft(label, "bucket", 0)
    _merge(table, moved)


def _label(name: str, marks: Sequence[str]) -> str | None:
    if name.startswith(LOADER):
        return LOADING
    match = MARK.fullmatch(name)
    return marks[int(match[1])] if match else None


def _merge(table: NodeTable, moved: Integers) -> None:
    """Give the figures of each node to the one that it has become a part of."""
    merged = np.flatnonzero(moved != np.arange(len(moved)))
    for figure in (table.host, table.calls, table.device):
        if figure is not None:
            np.add.at(figure, moved[merged], figure[merged])
            figure[merged] = 0
    table.of_span = np.where(table.of_span == NONE, NONE, moved[table.of_span])


def joined(parts: Sequence[LoopTable]) -> LoopTable:
    """Return the steps of several recordings of one loop, one after the other."""
    if len(parts) == 1:
        return parts[0]
    nodes: list[NodeDraft] = []
    number_by_key: dict[object, int] = {}
    numbers = [_node_numbers(part.table.nodes, nodes, number_by_key) for part in parts]
    figures = {
        name: np.hstack([
            _spread(getattr(part.table, name), part_numbers, len(nodes), part.table.host.shape[1])
            for part, part_numbers in zip(parts, numbers, strict=True)
        ])
        for name in ("host", "calls", "device")
    }  # fmt: skip
    some_device = any(part.table.device is not None for part in parts)
    table = NodeTable(
        nodes,
        figures["host"],
        figures["calls"],
        np.zeros(0, np.int64),
        device=figures["device"] if some_device else None,
        uses=parts[-1].table.uses,
        warnings=parts[-1].table.warnings,
    )

    def along(field: Callable[[LoopTable], Integers]) -> Integers:
        return np.concatenate([field(part) for part in parts])

    return LoopTable(
        table,
        along(lambda part: part.communication),
        along(lambda part: part.waiting),
        along(lambda part: part.concurrent),
        tuple(_joined_delays(parts)),
        parts[-1].timeline,
        tuple(products for part in parts for products in part.products),
    )


def _joined_delays(parts: Sequence[LoopTable]) -> Iterator[HostDelay]:
    by_name: dict[tuple[Cause, str], list[HostDelay]] = {}
    for part in parts:
        for delay in part.delays:
            by_name.setdefault((delay.cause, delay.name), []).append(delay)
    for (cause, name), delays in by_name.items():
        yield HostDelay(
            cause=cause,
            name=name,
            calls=sum(delay.calls for delay in delays),
            time=sum(delay.time for delay in delays),
            longest=max(delay.longest for delay in delays),
            steps=sum(delay.steps for delay in delays),
            duration=sum(delay.duration or 0.0 for delay in delays),
        )


def _node_numbers(
    part_nodes: Iterable[NodeDraft], nodes: list[NodeDraft], number_by_key: dict[object, int]
) -> list[int]:
    """Return the number of each node among all, which grow by those that are new."""
    numbers: list[int] = []
    for node in part_nodes:
        parent = numbers[node.parent] if node.parent >= 0 else NONE
        layer = node.layer if node.kind != "operator" else NONE
        key = (parent, node.kind, node.name, node.path, node.phase, node.shapes, layer, node.kernel)
        if key not in number_by_key:
            number_by_key[key] = len(nodes)
            nodes.append(dataclasses.replace(node, parent=parent))
        numbers.append(number_by_key[key])
    return numbers


def _spread(
    figure: np.ndarray | None, numbers: Sequence[int], count: int, steps: int
) -> np.ndarray:
    spread = np.zeros((count, steps), np.int64)
    if figure is not None:
        np.add.at(spread, list(numbers), figure)
    return spread
