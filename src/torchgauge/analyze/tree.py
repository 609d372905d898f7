"""From spans with layer and phase to the table of nodes: layers, operators below them, buckets."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.attribution import NONE, OPTIMIZER, ZERO_GRAD, Spans, by_depth
from torchgauge.analyze.call_tree import CallTree
from torchgauge.model.events import Events, Integers

ENGINE = "autograd engine"
OPTIMIZING = "optimizer"
ELSEWHERE = "outside the model"
BUCKETS = (OPTIMIZING, ENGINE, ELSEWHERE)


@dataclasses.dataclass
class Grown:
    """A node in the making: `host` and `calls` by step, the node's own."""

    name: str
    kind: str
    parent: int
    phase: int = NONE
    shapes: str = ""
    layer: int = NONE
    path: str = ""
    type: str = ""


@dataclasses.dataclass
class Growth:
    """All nodes, layers first, then buckets, then operators; `host` (ns) and `calls` by step.

    `of_span` is the node of each span, NONE for those outside of every step.
    """

    nodes: list[Grown]
    host: np.ndarray
    calls: np.ndarray
    of_span: Integers


def grow(events: Events, spans: Spans, tree: CallTree, marks: re.Pattern[str]) -> Growth:
    """Return the nodes of what was recorded inside the steps, whose spans `marks` matches.

    The sum of all nodes' `host` is the time of each step's span: what is in no layer, operator or
    gap of the autograd engine is in the bucket "outside the model".
    """
    nodes = [
        Grown(
            layer.name,
            "layer" if number else "model",
            layer.parent,
            layer=number,
            path=layer.path,
            type=tree.type(number),
        )
        for number, layer in enumerate(tree.layers)
    ]
    bucket = {name: len(nodes) + place for place, name in enumerate(BUCKETS)}
    nodes += [Grown(name, "bucket", 0) for name in BUCKETS]
    nesting, count = spans.nesting, len(spans.row)
    names = events.name.take(spans.row)
    is_step = names.where(lambda name: marks.fullmatch(name) is not None)
    step = _steps(spans, is_step)
    base = np.where(spans.layer != NONE, spans.layer, bucket[ELSEWHERE])
    base[np.isin(spans.phase, (OPTIMIZER, ZERO_GRAD))] = bucket[OPTIMIZING]
    of_span = base.copy()
    is_operator = ~(spans.is_layer | is_step)
    shapes = _shapes(events, spans)
    known: dict[tuple[int, int, int, int], int] = {}
    texts: dict[int, str] = {}
    for places in by_depth(nesting):
        for place in places[is_operator[places] & (step[places] != NONE)].tolist():
            parent = int(nesting.parent[place])
            inside = parent != NONE and is_operator[parent] and base[parent] == base[place]
            above = int(of_span[parent] if inside else base[place])
            shape = int(shapes[place])
            key = (above, int(spans.phase[place]), int(names.codes[place]), shape)
            number = known.get(key)
            if number is None:
                number = known[key] = len(nodes)
                if shape not in texts:
                    texts[shape] = _text(events.operators.dims.values[shape]) if shape >= 0 else ""
                nodes.append(
                    Grown(str(names[place]), "operator", above, key[1], texts[shape], NONE)
                )
            of_span[place] = number
    of_span[step == NONE] = NONE
    steps = int(step.max()) + 1 if count else 0
    own = nesting.self_time.copy()
    gaps = _gaps(spans)
    host = np.zeros((len(nodes), steps), np.int64)
    calls = np.zeros((len(nodes), steps), np.int64)
    inside = step != NONE
    for place_, gap in gaps:
        if step[place_] != NONE:
            host[bucket[ENGINE], step[place_]] += gap
            if nesting.parent[place_] != NONE:
                own[nesting.parent[place_]] -= gap
    np.add.at(host, (of_span[inside], step[inside]), own[inside])
    counted = inside & ~is_step
    np.add.at(calls, (of_span[counted], step[counted]), 1)
    return Growth(nodes, host, calls, of_span)


def _steps(spans: Spans, is_step: np.ndarray) -> Integers:
    """Return in which step each span began, on whatever thread; NONE outside of them."""
    marked = np.flatnonzero(is_step)
    marked = marked[np.argsort(spans.nesting.start[marked], kind="stable")]
    if not len(marked):
        return np.full(len(is_step), NONE)
    starts, ends = spans.nesting.start[marked], spans.nesting.end[marked]
    found = np.searchsorted(starts, spans.nesting.start, side="right") - 1
    within = (found >= 0) & (spans.nesting.start <= ends[np.maximum(found, 0)])
    return np.where(within, found, NONE)


def _gaps(spans: Spans) -> Iterator[tuple[int, int]]:
    """Yield (place, ns) of the engine's time between one node and the next on its thread."""
    nesting = spans.nesting
    nodes = np.flatnonzero(spans.is_node)
    last: dict[tuple[int, int], int] = {}
    siblings = zip(spans.thread.tolist(), nesting.parent.tolist(), strict=True)
    is_node = set(nodes.tolist())
    for place, key in enumerate(siblings):
        before = last.get(key)
        if place in is_node and before is not None and before in is_node:
            gap = int(nesting.start[place] - nesting.end[before])
            if gap > 0:
                yield place, gap
        last[key] = place


def _shapes(events: Events, spans: Spans) -> Integers:
    """Return the code of each span's input shapes, NONE where it has none."""
    operators = events.operators
    codes = np.full(len(events), NONE)
    codes[operators.row] = operators.dims.codes
    return codes[spans.row]


def _text(dims: object) -> str:
    """Return shapes as torch's own table has them: "[[4, 8], [8], []]"."""
    if isinstance(dims, tuple):
        return "[" + ", ".join(map(_text, dims)) + "]"
    return str(dims)
