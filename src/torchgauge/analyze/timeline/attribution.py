"""Layer and phase of each span that the host recorded.

Forward: the innermost range of a layer around it, on its thread. Backward: the layer during which
the autograd node was made, by its sequence number; nodes without one (gradient accumulation) go to
that of the node before on their thread. What a checkpoint runs again is inside both. Of layers,
nodes and optimizers around a span the innermost decides: an optimizer's closure may hold a whole
step, and a hook in the backward pass an optimizer's. What a data loader's iterator runs is its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Literal, get_args

import numpy as np

from torchgauge.analyze.timeline.call_tree import Call, CallTree, place
from torchgauge.readers.kineto.categories import PYTHON
from torchgauge.readers.nesting import ROUNDING, Nesting, nest
from torchgauge.records.trace.events import ABSENT, Codes, Events, Integers, Rows
from torchgauge.records.trace.host_delay import LOADER

Phase = Literal["forward", "backward", "recompute", "optimizer", "zero_grad", "outside"]
PHASES: tuple[Phase, ...] = get_args(Phase)
FORWARD, BACKWARD, RECOMPUTE, OPTIMIZER, ZERO_GRAD, OUTSIDE = range(len(PHASES))

_LAYER = re.compile(r"tg#(\d+)")
# Set where a checkpoint ended what it ran again: a mark, no span of the host's work.
RECOMPUTE_END = "tg!"
_NODE = "autograd::engine::evaluate_function: "
MARK = re.compile(r"tg:(\d+)")
HOST = ("cpu_op", "user_annotation")
NONE = -1


def own_range(name: str) -> int:
    """Return the module whose call a range of ours is, NONE for other names."""
    match = _LAYER.fullmatch(name)
    return int(match[1]) if match else NONE


@dataclasses.dataclass(frozen=True, eq=False)
class Spans:
    """The host's spans, an outer one before what it holds; all columns have one entry for each.

    `row` is the span's place in the events. `layer` numbers the layers of the call tree, NONE
    outside of them. `parent` is the place of the span around it, NONE without. `is_layer` are
    ranges of layers, `is_node` those of autograd's engine around one node, `is_loading` what a data
    loader's iterator runs, modules and all.
    """

    row: Rows
    thread: Codes
    nesting: Nesting
    layer: Integers
    phase: Integers
    is_layer: np.ndarray
    is_node: np.ndarray
    is_loading: np.ndarray

    @property
    def parent(self) -> Rows:
        """The place of the span around each."""
        return self.nesting.parent


def attribute(
    events: Events,
    tree: CallTree,
    *,
    number: Callable[[str], int] = own_range,
    calls: Rows | None = None,
) -> Spans:
    """Return the host's spans with layer and phase; the tree grows by the layers that are new.

    `number` gives the module of a call of a layer by the name of its span, which may be a Python
    function's, and NONE for other names. `calls` are the rows that may be calls, else all.
    """
    is_call = _SpanNames(events, np.arange(len(events))).number(number) != NONE
    is_call &= events.category.where(lambda name: name == PYTHON)
    is_host = events.category.where(lambda name: name in HOST)
    is_host &= ~events.name.where(lambda name: name == RECOMPUTE_END)
    rows = np.flatnonzero(is_host | is_call)
    start, duration, thread = events.start, events.duration, events.thread.codes
    rows = rows[np.lexsort((-duration[rows], start[rows], thread[rows]))].astype(np.int32)
    thread = thread[rows]
    nesting = nest(start[rows], duration[rows], thread, tolerance=_rounding(events))
    named = _SpanNames(events, rows)
    module = named.number(number)
    if calls is not None:
        module[~np.isin(rows, calls)] = NONE
    is_loading = _around(named.matches(lambda name: name.startswith(LOADER)), nesting) != NONE
    module[is_loading] = NONE
    is_layer = module != NONE
    is_node = named.matches(lambda name: name.startswith(_NODE)) & ~is_loading
    node, within = _around(is_node, nesting), _around(is_layer, nesting)
    range_layer = _placed(nesting, thread, module, node != NONE, tree)
    layer = np.where(within == NONE, NONE, range_layer[within])
    is_recomputed = (node != NONE) & (within > node)  # an outer span comes before what it holds
    is_backward = (node != NONE) & ~is_recomputed
    if is_backward.any():
        layer[is_backward] = _layers_of_nodes(events, rows, nesting, thread, layer, is_node)[
            node[is_backward]
        ]
    phase = np.full(len(rows), OUTSIDE, np.int8)
    phase[within != NONE] = FORWARD
    phase[is_recomputed] = RECOMPUTE
    phase[is_backward] = BACKWARD
    is_step = named.matches(lambda name: name.startswith("Optimizer.step#")) & ~is_loading
    zeroes = named.matches(lambda name: name.startswith("Optimizer.zero_grad#")) & ~is_loading
    optimizer = _around(is_step | zeroes, nesting)
    optimizes = optimizer > np.maximum(node, within)
    phase[optimizes] = np.where(is_step, OPTIMIZER, ZERO_GRAD)[optimizer[optimizes]]
    layer[optimizes] = NONE
    # A mark in an optimizer's step is around its closure.
    is_mark = named.matches(lambda name: MARK.fullmatch(name) is not None)
    phase[optimizes & (_around(is_mark & optimizes, nesting) > optimizer)] = OUTSIDE
    return Spans(rows, thread, nesting, layer, phase, is_layer, is_node, is_loading)


class _SpanNames:
    """The names of spans; a test runs once for each distinct name."""

    def __init__(self, events: Events, rows: Rows) -> None:
        self._names = events.name.take(rows)

    def matches(self, test: Callable[[str], bool]) -> np.ndarray:
        return self._names.where(test)

    def number(self, numbering: Callable[[str], int]) -> Integers:
        values = np.fromiter(map(numbering, self._names.values), np.int64, len(self._names.values))
        return np.append(values, NONE)[self._names.codes]


def _rounding(events: Events) -> int:
    """Return by how much times are off, in ns: old traces have whole microseconds."""
    return 0 if (events.start % ROUNDING).any() or (events.duration % ROUNDING).any() else ROUNDING


def _inherited(own: Integers, nesting: Nesting) -> Integers:
    """Return for each span its own value, else that of the nearest span around it that has one."""
    values = own.copy()
    for level in by_depth(nesting):
        inner = level[(values[level] == NONE) & (nesting.parent[level] != NONE)]
        values[inner] = values[nesting.parent[inner]]
    return values


def _around(chosen: np.ndarray, nesting: Nesting) -> Rows:
    """Return the place of the innermost chosen span that is or holds each span, NONE without."""
    return _inherited(np.where(chosen, np.arange(len(chosen)), NONE), nesting)


def by_depth(nesting: Nesting) -> Iterator[Rows]:
    """Yield the places of the outermost spans, then of those directly inside, and so on."""
    order = np.argsort(nesting.depth, kind="stable")
    if len(order):
        yield from np.split(order, np.cumsum(np.bincount(nesting.depth))[:-1])


def _placed(
    nesting: Nesting, thread: Codes, module: Integers, in_node: np.ndarray, tree: CallTree
) -> Integers:
    """Return the layer of every range, NONE for other spans."""
    indices = np.flatnonzero(module != NONE)
    columns = (module, thread, nesting.start, nesting.end, in_node)
    calls = [Call(*values) for values in zip(*(c[indices].tolist() for c in columns), strict=True)]
    layers = np.full(len(module), NONE)
    # `place` takes calls in the order of their ends, and tells equal spans apart by it.
    placements = place(calls[::-1], tree)[::-1]
    layers[indices] = [placement.layer for placement in placements]
    return layers


def _layers_of_nodes(
    events: Events,
    rows: Rows,
    nesting: Nesting,
    thread: Codes,
    layer: Integers,
    is_node: np.ndarray,
) -> Integers:
    """Return the layer of each span of the engine around a node; NONE for the other spans."""
    sequence, forward_thread = _numbers(events, rows)
    nodes = np.flatnonzero(is_node)
    nodes = nodes[np.argsort(nesting.start[nodes], kind="stable")]
    makers = _makers(events, nesting, thread, sequence, forward_thread, nodes)
    enclosing = _inherited(np.where(is_node, np.arange(len(rows)), NONE), nesting)
    node_layer = np.full(len(rows), NONE)
    previous_layer: dict[int, int] = {}
    for index, maker in zip(nodes.tolist(), makers.tolist(), strict=True):
        thread_code = int(thread[index])
        if maker != NONE:
            around = int(enclosing[maker])
            # An operator of a backward pass made it (a gradient of a gradient): its node's layer.
            within_node = around != NONE and layer[maker] == NONE
            previous_layer[thread_code] = int(node_layer[around] if within_node else layer[maker])
            node_layer[index] = previous_layer[thread_code]
        elif sequence[index] == ABSENT:
            node_layer[index] = previous_layer.get(thread_code, NONE)
    return node_layer


def _makers(
    events: Events,
    nesting: Nesting,
    thread: Codes,
    sequence: Integers,
    forward_thread: Integers,
    nodes: Rows,
) -> Integers:
    """Return the operator that made each node: the last to begin under its number or one before.

    Numbers are counted per thread: where two threads ran forward, the arrows of the trace decide.
    """
    forward = np.flatnonzero((sequence != ABSENT) & (forward_thread <= 0))
    forward = forward[np.argsort(nesting.start[forward], kind="stable")]
    by_number = dict(zip(sequence[forward].tolist(), forward.tolist(), strict=True))
    # A view that is written to takes further numbers, which no operator begins under.
    numbers = np.array([NONE, *sorted(by_number)], np.int64)
    latest = numbers[np.searchsorted(numbers, sequence[nodes], side="right") - 1]
    makers = np.array([by_number.get(n, NONE) for n in latest.tolist()], np.int64)
    if len(np.unique(thread[forward])) > 1:
        arrows = _arrows(events, nesting, thread)
        for index, node in enumerate(nodes.tolist()):
            makers[index] = arrows.get(node, makers[index])
    return makers


def _arrows(events: Events, nesting: Nesting, thread: Codes) -> dict[int, int]:
    """Return, by the span around an autograd node, the operator from which its arrow comes."""
    flows = events.flows
    chosen = np.flatnonzero(flows.category.where(lambda name: name == "fwdbwd"))
    spans = zip(thread.tolist(), nesting.start.tolist(), strict=True)
    span_at = {key: index for index, key in enumerate(spans)}
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for flow in chosen.tolist():
        index = span_at.get((int(flows.thread[flow]), int(flows.time[flow])))
        if index is not None:
            (begins if flows.begins[flow] else ends)[int(flows.id[flow])] = index
    joined: dict[int, int] = {}
    for number, end in ends.items():
        if number in begins:
            joined[end] = joined[int(nesting.parent[end])] = begins[number]
    return joined


def _numbers(events: Events, rows: Rows) -> tuple[Integers, Integers]:
    """Return sequence number and forward thread of each span, ABSENT where it has none."""
    entry_of = np.full(len(events), NONE)
    entry_of[events.operators.row] = np.arange(len(events.operators.row))
    entry = entry_of[rows]
    is_operator = entry != NONE
    columns = []
    for column in (events.operators.sequence, events.operators.forward_thread):
        values = np.full(len(rows), ABSENT)
        values[is_operator] = column[entry[is_operator]]
        columns.append(values)
    return columns[0], columns[1]
