"""Join the kernels of CUDA graphs to the operators of the recording in which they were captured.

One call launches all work of a graph, so a recording of replays has no operators for it. The
recording of the capture has them, with calls that queued the same work and ran none of it. Both
have it in the same order: by node where the replay numbers nodes, else by time. That a capture is
of this graph is told by its kernels: one that does not name them (CUPTI's) is of none.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import HOST, NONE
from torchgauge.analyze.timeline.launches import KINDS, first_positions, is_graph_launch
from torchgauge.readers.kineto.categories import MODULE_CALL, is_launch
from torchgauge.readers.nesting import Nesting, nest
from torchgauge.records.trace.events import ABSENT, CapturedWork, Coded, Events, Rows
from torchgauge.records.trace.trace import GraphReplays

_BEGIN, _END = (re.compile(rf"(cuda|cu|hip)Stream{end}Capture") for end in ("Begin", "End"))
_QUEUES = re.compile(r"(?:cuda|cu|hip)(?:\w*(Launch)\w*Kernel|(Memcpy)|(Memset))")
_KIND = dict(zip(("Launch", "Memcpy", "Memset"), KINDS, strict=True))


class Node(NamedTuple):
    """A piece of work of a graph; a copy or a memory set has no kernel."""

    kind: str
    kernel: str


@dataclasses.dataclass(frozen=True, eq=False)
class Capture:
    """A graph as its capture was recorded.

    It lasted from `begin` to `end`. `rows` are the spans of `events` around its nodes, outer ones
    first, `operator` the index among them of the innermost around each node, NONE without one.
    `names` and `arguments` are those of `rows`.
    """

    events: Events
    nodes: tuple[Node, ...]
    begin: int
    end: int
    rows: Rows
    operator: Rows
    names: tuple[str, ...]
    arguments: tuple[object, ...]

    def around(self, node: int) -> object:
        """Return name and arguments of the innermost span around a node."""
        span = int(self.operator[node])
        return None if span == NONE else (self.names[span], self.arguments[span])


def captures(events: Events) -> Iterator[Capture]:
    """Yield the graphs whose capture was recorded, in order."""
    calls = _calls(events, lambda name: bool(_BEGIN.match(name) or _END.match(name)))
    if not len(calls):
        return
    is_host = events.category.where(lambda name: name in HOST)
    is_host |= events.name.where(lambda name: name.startswith(MODULE_CALL))
    host = np.flatnonzero(is_host)
    nesting = nest(events.start[host], events.duration[host], events.thread.codes[host])
    queued = _calls(events, lambda name: _QUEUES.match(name) is not None)
    entry = first_positions(events.launches.row, queued)
    ran = np.isin(events.launches.correlation[entry], events.device_work.correlation)
    queued, entry = queued[~ran], entry[~ran]
    by_thread = calls[np.lexsort((events.start[calls], events.thread.codes[calls]))]
    windows = [
        (int(events.start[first]), int(events.start[last]))
        for first, last in itertools.pairwise(by_thread.tolist())
        if events.thread.codes[first] == events.thread.codes[last]
        and _BEGIN.match(str(events.name[first])) and _END.match(str(events.name[last]))
    ]  # fmt: skip
    for begin, end in sorted(windows):
        inside = (events.start[queued] >= begin) & (events.start[queued] <= end)
        order = np.argsort(events.start[queued[inside]], kind="stable")
        if len(order):
            placed = queued[inside][order], entry[inside][order]
            yield _capture(events, host, nesting, (begin, end), *placed)


def _capture(
    events: Events, host: Rows, nesting: Nesting, window: tuple[int, int], queued: Rows, entry: Rows
) -> Capture:
    launches, begin = events.launches, window[0]
    nodes = tuple(
        Node(_queued_kind(events, row), str(launches.kernel[index] or ""))
        for row, index in zip(queued.tolist(), entry.tolist(), strict=True)
    )
    middle = events.start[queued] + events.duration[queued] // 2
    around = nesting.innermost_at(middle, events.thread.codes[queued])
    around[events.start[host][around] < begin] = NONE
    needed, level = np.zeros(len(host), np.bool_), around
    while len(level := level[level != NONE]):
        level = level[nesting.start[level] >= begin]
        needed[level] = True
        level = nesting.parent[level]
    places = np.flatnonzero(needed)
    places = places[np.lexsort((nesting.depth[places], nesting.start[places]))]
    index = np.full(len(host) + 1, NONE)
    index[places] = np.arange(len(places))
    rows, table = host[places], events.operators
    arguments = first_positions(table.row, rows)
    return Capture(
        events,
        nodes,
        *window,
        rows,
        index[around],
        names=tuple(str(events.name[row]) for row in rows.tolist()),
        arguments=tuple(
            None if entry == NONE else (table.dims[entry], table.types[entry])
            for entry in arguments.tolist()
        ),
    )


def _calls(events: Events, is_called: Callable[[str], bool]) -> Rows:
    return np.flatnonzero(events.name.where(is_called) & events.category.where(is_launch))


def _queued_kind(events: Events, row: int) -> str:
    match = _QUEUES.match(str(events.name[row]))
    return _KIND[next(filter(None, match.groups()))] if match else ""


class Replay(NamedTuple):
    """A launch of a graph: the call's row, and its work in order, as entries of `device_work`."""

    call: int
    entries: Rows
    nodes: tuple[Node, ...]


def replays(events: Events) -> list[Replay]:
    """Return the launches of graphs whose work is in the recording, in order."""
    calls, table, launches = _calls(events, is_graph_launch), events.device_work, []
    calls = calls[np.argsort(events.start[calls], kind="stable")]
    correlation = events.launches.correlation[first_positions(events.launches.row, calls)]
    order = np.argsort(table.correlation, kind="stable")
    ordered = table.correlation[order]
    for call, number in zip(calls.tolist(), correlation.tolist(), strict=True):
        low, high = np.searchsorted(ordered, [number, number + 1])
        entries = order[low:high] if number > 0 else order[:0]
        keys = table.graph_node[entries], events.start[table.row[entries]]
        numbered = len(set(keys[0].tolist())) == len(entries)
        entries = entries[np.argsort(keys[0] if numbered else keys[1], kind="stable")]
        nodes = tuple(
            Node(kind, str(events.name[row]) if kind == KINDS[0] else "")
            for row in table.row[entries].tolist()
            for kind in (str(events.category[row]),)
        )
        if nodes:
            launches.append(Replay(call, entries, nodes))
    return launches


class _Join(NamedTuple):
    """A replay with its capture: the node of each piece of work, NONE where it is not certain."""

    replay: Replay
    capture: Capture
    node: Rows
    sizes_known: bool


def joined(events: Events, recordings: Sequence[Events]) -> tuple[Events, GraphReplays | None]:
    """Return the events with the operators of captures at the calls that replayed their graphs.

    Such an operator takes some ns of the call, in which it did not run again. Where captures of
    different operands fit a replay, its operators are without their arguments. Figures are None
    where the events neither replay nor capture a graph.
    """
    launched_graphs, captured = replays(events), list(captures(events))
    joins = list(_joins(launched_graphs, [c for events in recordings for c in captures(events)]))
    counts = [int((join.node != NONE).sum()) for join in joins]
    figures = GraphReplays(
        launches=len(launched_graphs),
        work=sum(len(replay.nodes) for replay in launched_graphs),
        joined=sum(counts),
        without_sizes=sum(
            count for count, join in zip(counts, joins, strict=True) if not join.sizes_known
        ),
        captured=len(captured),
        capture_time=(captured[-1].end - captured[0].begin) * 1e-9 if captured else 0.0,
    )
    for capture in dict.fromkeys(join.capture for join in joins):
        events = _with_operators(events, [join for join in joins if join.capture is capture])
    return events, figures if launched_graphs or captured else None


def _joins(launched_graphs: Sequence[Replay], recorded: Sequence[Capture]) -> Iterator[_Join]:
    fitting_by_nodes: dict[tuple[Node, ...], dict[int, Rows]] = {}
    previous, is_certain = NONE, False
    for replay in launched_graphs:
        if replay.nodes not in fitting_by_nodes:
            orders = {n: _order(capture, replay.nodes) for n, capture in enumerate(recorded)}
            fitting_by_nodes[replay.nodes] = {n: o for n, o in orders.items() if o is not None}
        fitting = fitting_by_nodes[replay.nodes]
        if not fitting:
            previous = NONE
            continue
        # Graphs are replayed in the order in which they were captured.
        candidate = previous + 1
        follows = candidate in fitting and recorded[candidate].events is recorded[previous].events
        number = candidate if follows else next(iter(fitting))
        names = {recorded[n].names for n in fitting}
        equal = len(names) == len({recorded[n].arguments for n in fitting}) == 1
        is_certain = equal or (follows and is_certain)
        previous = number
        if is_certain or len(names) == 1:
            yield _Join(replay, recorded[number], fitting[number], is_certain)


def _order(capture: Capture, nodes: tuple[Node, ...]) -> Rows | None:
    """Return the node of the capture for each piece of work, None where it is another graph.

    Of a graph with branches works ends in another order: equal kernels in it may be exchanged, and
    are joined where their operators are alike.
    """
    if nodes == capture.nodes:
        return np.arange(len(nodes))
    if Counter(nodes) != Counter(capture.nodes):
        return None
    order = np.full(len(nodes), NONE)
    for node in set(nodes):
        captured, replayed = (
            [number for number, other in enumerate(graph) if other == node]
            for graph in (capture.nodes, nodes)
        )
        if node.kernel and len(set(map(capture.around, captured))) == 1:
            order[replayed] = captured
    return order


def _with_operators(events: Events, joins: Sequence[_Join]) -> Events:
    """Return the events with the spans of one capture in each call that replayed it."""
    capture = joins[0].capture
    source, rows = capture.events, capture.rows
    begin = source.start[rows]
    end = begin + source.duration[rows]
    ticks = np.unique(np.concatenate([begin, end]))
    begin, end = np.searchsorted(ticks, begin), np.searchsorted(ticks, end)
    calls = np.array([join.replay.call for join in joins])
    room = np.minimum(events.duration[calls] - 2, len(ticks))[:, None]
    first = events.start[calls][:, None] + 1
    starts, ends = (first + ranks[None] * room // len(ticks) for ranks in (begin, end))
    table = source.operators
    entry = first_positions(table.row, rows)
    has_entry = np.flatnonzero(entry != NONE)
    added = np.tile(entry[has_entry], len(joins))
    sized = np.repeat([join.sizes_known for join in joins], len(has_entry))
    offsets = len(events) + np.arange(len(joins)) * len(rows)
    operators: dict[str, Any] = {
        name: _appended(column, _argument(table, name, added, sized))
        if isinstance(column, Coded)
        else np.append(column, np.full(len(added), ABSENT))
        for name, column in vars(events.operators).items()
    }
    operators["row"] = np.append(events.operators.row, np.add.outer(offsets, has_entry).ravel())
    device_rows = [events.device_work.row[join.replay.entries] for join in joins]
    placed = [capture.operator[join.node] for join in joins]
    work = np.concatenate([events.captured.row, *device_rows])
    spans = np.concatenate([
        events.captured.operator,
        *(np.where((place == NONE) | (join.node == NONE), NONE, offset + place)
          for place, join, offset in zip(placed, joins, offsets.tolist(), strict=True)),
    ])  # fmt: skip
    work, spans = work[spans != NONE], spans[spans != NONE]
    order = np.argsort(work)
    thread = Coded(np.repeat(events.thread.codes[calls], len(rows)), events.thread.values)
    return dataclasses.replace(
        events,
        start=np.append(events.start, starts.ravel()),
        duration=np.append(events.duration, (ends - starts).ravel()),
        name=_appended(events.name, source.name.take(np.tile(rows, len(joins)))),
        category=_appended(events.category, source.category.take(np.tile(rows, len(joins)))),
        thread=_appended(events.thread, thread),
        operators=dataclasses.replace(events.operators, **operators),
        captured=CapturedWork(work[order], spans[order]),
    )


_SIZES = ("dims", "strides", "inputs")


def _argument(table: Any, name: str, entries: Rows, sized: np.ndarray) -> Coded[Any]:
    column: Coded[Any] = getattr(table, name).take(entries)
    if name not in _SIZES:
        return column
    return Coded(np.where(sized, column.codes, ABSENT).astype(np.int32), column.values)


def _appended(column: Coded[Any], added: Coded[Any]) -> Coded[Any]:
    """Return both columns in one; a value that both have keeps its code."""
    codes = {value: code for code, value in enumerate(column.values)}
    new = [codes.setdefault(value, len(codes)) for value in added.values]
    translated = np.array([*new, ABSENT], np.int32)[added.codes]
    return Coded(np.append(column.codes, translated), tuple(codes))
