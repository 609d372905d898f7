"""The nodes of a recorded loop: its steps, its marks, its data loading, its communication.

Steps are told apart by points, since a loop that nobody edited has no span around a step: step k
lasts from point k to point k + 1, whose spans are empty and named by STEP.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from torchgauge.analyze.attribution import NONE, OUTSIDE, Spans, attribute
from torchgauge.analyze.call_tree import CallTree
from torchgauge.analyze.device_time import COMMUNICATION
from torchgauge.analyze.intervals import Intervals, union
from torchgauge.analyze.steps import Steps, marked
from torchgauge.analyze.tree import ELSEWHERE, Grown, Growth, grow
from torchgauge.model.events import ABSENT, Coded, Events, Integers

LOADING = "data loading"
STEP = re.compile(r"tg@\d+")
MARK = re.compile(r"tg:(\d+)")
_LOADER = "enumerate(DataLoader)#"
_TALK = ("gloo:", "nccl:", "mpi:", "ucc:", "c10d::")


@dataclasses.dataclass
class LoopGrowth:
    """The nodes of a loop and, by step in ns: its communication, and what it did at once.

    `communication`: when any was under way; `waiting`: when nothing else was done by the thread
    that steps; `beside`: what other threads did while that one was at work too.
    """

    growth: Growth
    communication: Integers
    waiting: Integers
    beside: Integers


def loop_growth(events: Events, tree: CallTree, marks: Sequence[str]) -> LoopGrowth:
    """Return the nodes of the recorded steps; `marks` are the names of the spans `tg:N`.

    A mark outside of layers is a bucket of its name, and what it holds is below it but for layers
    and what has a bucket already. Communication on other threads counts where the stepping thread
    waits for it: then the nodes' `host` adds up to the step, but for `beside`.
    """
    events = _windows(events)
    spans = attribute(events, tree)
    growth = grow(events, spans, tree, STEP)
    names = events.name.take(spans.row)
    steps = marked(
        names.where(lambda name: STEP.fullmatch(name) is not None),
        spans.nesting.start,
        spans.nesting.end,
    )
    talk = names.where(lambda name: name.startswith(_TALK))
    communication, waiting = _communication(growth, spans, steps, talk)
    _into_buckets(growth, marks)
    length = steps.end - steps.begin
    return LoopGrowth(growth, communication, waiting, growth.host.sum(axis=0) - length)


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
        here = (events.thread.codes == events.thread.codes[points[0]]) & ~is_point
        # Device work has threads of its own, and what is a point in no trace: only spans.
        rows = np.flatnonzero(here)
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
    growth: Growth, spans: Spans, steps: Steps, talk: np.ndarray
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
    step_of = steps.at(nesting.start[talking])
    elsewhere = next(n for n, node in enumerate(growth.nodes) if node.name == ELSEWHERE)
    for step, place in enumerate(steps.place.tolist()):
        window = (int(steps.begin[step]), int(steps.end[step]))
        here = talking[step_of == step]
        mine = spans.thread[here] == spans.thread[place]
        own, others = here[mine], here[~mine]
        done = np.flatnonzero(parent == place)
        busy = union(nesting.start[done], nesting.end[done], window)
        apart = union(nesting.start[others], nesting.end[others], window)
        total[step] = union(nesting.start[here], nesting.end[here], window).length
        exposed = apart.outside(busy)
        waiting[step] = exposed.length + union(nesting.start[own], nesting.end[own], window).length
        growth.host[elsewhere, step] -= exposed.length
        _share(growth, spans, others[parent[others] == NONE], step, exposed)
    return total, waiting


def _share(growth: Growth, spans: Spans, places: Integers, step: int, exposed: Intervals) -> None:
    """Give spans of other threads the time in which they were waited for, to the first of two."""
    left = exposed
    for place in places.tolist():
        begin, end = int(spans.nesting.start[place]), int(spans.nesting.end[place])
        mine = left.within(begin, end)
        left = left.outside(Intervals(np.array([begin]), np.array([end])))
        growth.host[growth.of_span[place], step] += mine - int(spans.nesting.self_time[place])


def _into_buckets(growth: Growth, marks: Sequence[str]) -> None:
    """Make buckets of marks and of the data loader's spans; put communication into its own."""
    nodes = growth.nodes
    number = {node.name: place for place, node in enumerate(nodes) if node.kind == "bucket"}
    outside, talk = number[ELSEWHERE], number[COMMUNICATION]
    moved = np.arange(len(nodes))
    free = {outside}  # what is directly in one of these is in no layer
    for place, node in enumerate(nodes):
        if node.kind not in ("operator", "kernel"):
            continue
        node.parent = int(moved[node.parent])
        label = _label(node.name, marks)
        if node.kind == "kernel" or node.parent not in free or node.phase != OUTSIDE:
            node.name = label or node.name
        elif node.name.startswith(_TALK):
            node.parent = talk
        elif label is not None:
            into = number.setdefault(label, place)
            moved[place] = into
            free.add(into)
            if into == place:
                nodes[place] = Grown(label, "bucket", 0)
    _merge(growth, moved)


def _label(name: str, marks: Sequence[str]) -> str | None:
    if name.startswith(_LOADER):
        return LOADING
    found = MARK.fullmatch(name)
    return marks[int(found[1])] if found else None


def _merge(growth: Growth, moved: Integers) -> None:
    """Give the figures of each node to the one that it has become a part of."""
    gone = np.flatnonzero(moved != np.arange(len(moved)))
    for figure in (growth.host, growth.calls, growth.device):
        if figure is not None:
            np.add.at(figure, moved[gone], figure[gone])
            figure[gone] = 0
    growth.of_span = np.where(growth.of_span == NONE, NONE, moved[growth.of_span])


def joined(parts: Sequence[LoopGrowth]) -> LoopGrowth:
    """Return the steps of several recordings of one loop, one after the other."""
    if len(parts) == 1:
        return parts[0]
    nodes: list[Grown] = []
    known: dict[object, int] = {}
    places = [_known(part.growth.nodes, nodes, known) for part in parts]
    figures = {
        name: np.hstack([
            _spread(getattr(part.growth, name), place, len(nodes), part.growth.host.shape[1])
            for part, place in zip(parts, places, strict=True)
        ])
        for name in ("host", "calls", "device")
    }  # fmt: skip
    some_device = any(part.growth.device is not None for part in parts)
    growth = Growth(
        nodes,
        figures["host"],
        figures["calls"],
        np.zeros(0, np.int64),
        figures["device"] if some_device else None,
        parts[-1].growth.uses,
        parts[-1].growth.warnings,
    )

    def along(of: Callable[[LoopGrowth], Integers]) -> Integers:
        return np.concatenate([of(part) for part in parts])

    return LoopGrowth(
        growth,
        along(lambda part: part.communication),
        along(lambda part: part.waiting),
        along(lambda part: part.beside),
    )


def _known(mine: Iterable[Grown], nodes: list[Grown], known: dict[object, int]) -> list[int]:
    """Return the place of each node among all, which grow by those that are new."""
    places: list[int] = []
    for node in mine:
        parent = places[node.parent] if node.parent >= 0 else NONE
        layer = node.layer if node.kind != "operator" else NONE
        key = (parent, node.kind, node.name, node.path, node.phase, node.shapes, layer, node.kernel)
        if key not in known:
            known[key] = len(nodes)
            nodes.append(dataclasses.replace(node, parent=parent))
        places.append(known[key])
    return places


def _spread(figure: np.ndarray | None, places: Sequence[int], count: int, steps: int) -> np.ndarray:
    spread = np.zeros((count, steps), np.int64)
    if figure is not None:
        np.add.at(spread, list(places), figure)
    return spread
