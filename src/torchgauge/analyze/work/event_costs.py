"""Costs from recorded operators alone: the work of each span, by its shapes in the trace.

The outermost operator whose work is known counts, and what runs inside it does not: that is its
way of doing it. Composites do nothing themselves. No torch is needed, nor the model: this reads
traces from not_on_device, and checks the cost pass of a live run.
"""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, RECOMPUTE_END, Spans, by_depth
from torchgauge.analyze.work.categories import COMPILED_GRAPH
from torchgauge.analyze.work.recorded_work import Texts, free_bytes, recorded_work
from torchgauge.formulas.kinds import COMPOSITE_OVERLOADS, SOMETIMES_COMPOSITE, kernel_kind, kind
from torchgauge.formulas.saved import saves_result
from torchgauge.records.trace.events import ABSENT, Coded, Events, Integers, Rows

# What is known of a span by its name and arguments.
OPEN = 0  # did nothing itself: what is inside counts
COUNTED = 1  # its figures are known, and what is inside is skipped
UNKNOWN = 2  # an operator whose work is not known; what is inside would be a part of it
OUTER = 3  # unknown, unless something inside is counted
OTHERWISE = 4  # open where something inside is counted, else counted
LEAF = 5  # open, but unknown where it holds nothing
PARTLY = 6  # open, and unknown beside
NEVER = 7  # has an event, and was stopped before it ran
CLOSING = (COUNTED, UNKNOWN, NEVER)

_NODE = re.compile(r".*Backward\d*(_copy)?")
# torch's own ranges, named like operators.
_RANGES = ("autograd::", "torch::autograd::", "torch.distributed.ddp.", "torch::distributed::")
_NO_TENSOR = "its sizes do not belong to a tensor"
_MAX_WORK = 2**53  # FLOP and bytes of a call: no device ends what is more


@dataclasses.dataclass(frozen=True, eq=False)
class EventCosts:
    """The work of each span itself, in the order of `Spans`; `by_node` sums it for a tree.

    `matmul` and `vector` are FLOP (causal attention at its exact lower triangle, as its kernels do
    it), `bytes` compulsory traffic; 0 for what did nothing itself (a
    range, a composite, what runs inside a counted operator), ABSENT where it is unknown. `counts`
    says which spans answer for themselves: operators that were counted or are unknown. `unknown`
    has the calls of each unknown operator, and why. `products` is `matmul` with causal attention
    whole, 0 where unknown. `not_on_device` are operators whose work is not of the recorded device.
    """

    matmul: Integers
    vector: Integers
    bytes: Integers
    counts: np.ndarray
    unknown: dict[str, tuple[int, str]]
    products: Integers
    not_on_device: np.ndarray

    @property
    def flops(self) -> Integers:
        """FLOP of each span itself, ABSENT where unknown."""
        return np.where(self.matmul == ABSENT, ABSENT, self.matmul + self.vector)

    @property
    def coverage(self) -> float | None:
        """The share of operator calls whose work is known; None without calls."""
        calls = int(self.counts.sum())
        return float((self.counts & (self.matmul != ABSENT)).sum()) / calls if calls else None


class NodeSum(NamedTuple):
    """The cost of a node's own spans.

    `flops` is None where nothing of them is known, `unknown` the calls of which it is not; `bytes`
    is None where those of `unknown_bytes` calls are not known.
    """

    flops: int | None
    unknown: int
    bytes: int | None
    unknown_bytes: int


def by_node(costs: EventCosts, of_span: Integers, count: int) -> list[NodeSum | None]:
    """Return the sums of each node that has a span, as `NodeTable.of_span` has them."""
    inside = (of_span != NONE) & ~costs.not_on_device
    nodes = of_span[inside]
    spans = np.bincount(nodes, minlength=count).tolist()
    flops, unknown = _summed(nodes, costs.flops[inside], count)
    traffic_sums, unknown_bytes = _summed(nodes, costs.bytes[inside], count)
    return [
        NodeSum(
            work if work or not without_flops else None,
            without_flops,
            None if without_bytes else traffic,
            without_bytes,
        )
        if number
        else None
        for number, work, without_flops, traffic, without_bytes in zip(
            spans, flops, unknown, traffic_sums, unknown_bytes, strict=True
        )
    ]


def _summed(nodes: Integers, values: Integers, count: int) -> tuple[list[int], list[int]]:
    """Return the sum of each node's values that are known, and how many are not."""
    lacks = values == ABSENT
    sums = np.zeros(count, np.int64)  # exact, as the weights of bincount are not
    np.add.at(sums, nodes[~lacks], values[~lacks])
    return sums.tolist(), np.bincount(nodes[lacks], minlength=count).tolist()


def event_costs(events: Events, spans: Spans) -> EventCosts:
    """Return the work of every span as its recorded shapes tell it."""
    plans, of_span = _plans(events, spans)
    rule = np.array([plan.rule for plan in plans], np.int8)[of_span]
    rule[_never_ran(events, spans)] = NEVER
    works = np.array([plan.works for plan in plans], np.bool_)[of_span]
    rule, closed = _settled(spans, rule, works)
    unknown = (rule == UNKNOWN) & ~closed
    counted = (rule == COUNTED) & ~closed
    figures = [
        np.where(unknown, ABSENT, np.where(counted, column[of_span], 0))
        for column in np.array([plan.figures for plan in plans], np.int64).reshape(-1, 4).T
    ]
    reasons: dict[str, tuple[int, str]] = {}
    for plan in of_span[unknown].tolist():
        name, reason = plans[plan].name, plans[plan].reason
        reasons[name] = (reasons.get(name, (0, ""))[0] + 1, reason)
    ordered = dict(sorted(reasons.items(), key=lambda item: -item[1][0]))
    # A layer inside of what is unknown did some of that.
    hidden = closed & spans.is_layer & _inside(spans, unknown)
    matmul, vector, moved, products = (np.where(hidden, ABSENT, column) for column in figures)
    products = np.maximum(products, 0)
    not_on_device = np.zeros_like(unknown)
    return EventCosts(matmul, vector, moved, counted | unknown, ordered, products, not_on_device)


def on_device(costs: EventCosts, spans: Spans, launching: Integers) -> EventCosts:
    """Return the costs without those of operators that launched no work of a device.

    They ran on the host, were captured into a graph, or their work is not in the recording.
    `launching` are the spans that launched some, NONE for none.
    """
    ran = np.zeros(len(spans.row), np.bool_)
    ran[launching[launching != NONE]] = True
    for places in reversed(list(by_depth(spans.nesting))):
        inner = places[ran[places] & (spans.parent[places] != NONE)]
        ran[spans.parent[inner]] = True
    not_on_device = costs.counts & ~ran & ((costs.flops != 0) | (costs.bytes != 0))
    columns = (costs.matmul, costs.vector, costs.bytes)
    matmul, vector, moved = (np.where(not_on_device, 0, column) for column in columns)
    products = np.where(not_on_device, 0, costs.products)
    counts = costs.counts & ~not_on_device
    return EventCosts(matmul, vector, moved, counts, costs.unknown, products, not_on_device)


def _inside(spans: Spans, outer: np.ndarray) -> np.ndarray:
    """Return which spans are in one of the others."""
    inside = np.zeros(len(outer), np.bool_)
    for places in by_depth(spans.nesting):
        inner = places[spans.parent[places] != NONE]
        inside[inner] = (inside | outer)[spans.parent[inner]]
    return inside


def _never_ran(events: Events, spans: Spans) -> Rows:
    """Return the operators that have an event, and that a checkpoint stopped before they ran.

    Run again without reentrance it stops as soon as the last tensor that the backward pass needs is
    saved. An operator saves its inputs before it runs and its results after: only what saves none
    never ran.
    """
    marks = np.flatnonzero(events.name.where(lambda name: name == RECOMPUTE_END))
    nesting = spans.nesting
    around = nesting.innermost_at(events.start[marks], events.thread.codes[marks])
    names = events.name.take(spans.row)
    unfinished = set()
    for mark, outer in zip(marks.tolist(), around.tolist(), strict=True):
        span = outer
        while span != NONE:
            span = _last_inside(spans, span, int(events.start[mark]))
            name = "" if span == NONE else str(names[span])
            if kind(name) != "composite":
                break
        if span != NONE and "::" in name and not saves_result(name):
            unfinished.add(span)
    return np.array(sorted(unfinished), np.intp)


def _last_inside(spans: Spans, outer: int, until: int) -> int:
    """Return the last span directly inside that began before; NONE without."""
    inside = np.flatnonzero(spans.parent == outer)
    inside = inside[spans.nesting.start[inside] <= until]
    return int(inside[np.argmax(spans.nesting.start[inside])]) if len(inside) else NONE


class _Plan(NamedTuple):
    """Rule and figures of a span by its name and arguments; `works` where they have a formula."""

    name: str
    rule: int
    matmul: int = 0
    vector: int = 0
    bytes: int = 0
    works: bool = False
    reason: str = ""
    products: int = 0

    @property
    def figures(self) -> tuple[int, int, int, int]:
        return self.matmul, self.vector, self.bytes, self.products


def _plans(events: Events, spans: Spans) -> tuple[list[_Plan], Integers]:
    """Return a plan for each name with its arguments, and the index of the plan of each span."""
    operators = events.operators
    entry = np.full(len(events), NONE)
    entry[operators.row] = np.arange(len(operators.row))
    entry = entry[spans.row]
    columns: list[Coded[tuple[object, ...]]] = [
        operators.dims, operators.types, operators.strides, operators.inputs,
    ]  # fmt: skip
    names = events.name.take(spans.row)
    is_operator = events.category.take(spans.row).where(lambda name: name == "cpu_op")
    codes = [np.append(column.codes, ABSENT)[entry] for column in columns]
    keys, inverse = _distinct([names.codes, is_operator, *codes])
    # Where overloads are named, a name without one is that of the default overload.
    named = any(name.startswith("aten::") and "." in name for name in names.values)
    plans = []
    for name, operator, *operand_codes in keys.tolist():
        texts = [
            None if code == ABSENT else column.values[code]
            for column, code in zip(columns, operand_codes, strict=True)
        ]
        dims, types, strides, inputs = texts
        plans.append(
            _plan(names.values[name], bool(operator), Texts(dims, types, strides, inputs), named)
        )
    return plans, inverse


def _distinct(columns: list[np.ndarray]) -> tuple[Integers, Integers]:
    """Return the distinct rows of the columns, and which of them each row is."""
    place = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        place = place * (int(column.max(initial=0)) + 2) + column + 1
        _, first, place = np.unique(place, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1).astype(np.int64), place


def _plan(name: str, operator: bool, texts: Texts, overloads: bool) -> _Plan:
    if name.startswith(COMPILED_GRAPH):
        return _Plan(name, PARTLY, reason="compiler-fused code is not an operator")
    if not operator or name.startswith(_RANGES):
        return _Plan(name, OPEN)
    if "::" not in name:
        # A range has no arguments; what has some and holds nothing is a function of the user's.
        empty = (
            texts.dims is None
            or _NODE.fullmatch(name)
            or name.startswith(("detach", "record_param_comms"))
        )
        return _Plan(name, OPEN if empty else LEAF, reason="no operator inside it was recorded")
    composite, how = kind(name) == "composite", kernel_kind(name)
    mixed = name in SOMETIMES_COMPOSITE or (not overloads and name in COMPOSITE_OVERLOADS)
    if composite and not mixed:
        return _Plan(name, OPEN)
    if how == "free":
        return _free(name, _or_absent(free_bytes(name, texts)))
    if how == "lists":
        return _Plan(name, OUTER, reason="the trace does not say the types in a list of tensors")
    if how == "unknown":
        return _Plan(name, OUTER, reason="it has no formula")
    recorded = recorded_work(name, texts)
    if recorded.work is None:
        return _Plan(name, OUTER if mixed else UNKNOWN, reason=recorded.reason)
    work = recorded.work
    # Kernels that the file calls causal skip what is above the diagonal.
    matmul, vector = work.matmul if work.causal is None else work.causal, work.vector
    moved = _or_absent(recorded.bytes)
    if max(matmul, work.matmul, vector, moved) > _MAX_WORK or min(matmul, vector) < 0:
        return _Plan(name, UNKNOWN, reason=_NO_TENSOR)
    rule = OTHERWISE if composite else COUNTED
    return _Plan(name, rule, matmul, vector, moved, works=True, products=work.matmul)


def _free(name: str, moved: int) -> _Plan:
    if moved > _MAX_WORK:
        return _Plan(name, UNKNOWN, reason=_NO_TENSOR)
    return _Plan(name, COUNTED, bytes=moved)


def _or_absent(value: int | None) -> int:
    return ABSENT if value is None else value


def _settled(spans: Spans, rule: Integers, works: np.ndarray) -> tuple[Integers, np.ndarray]:
    """Return OPEN, COUNTED or UNKNOWN for each span, and the mask of those in a closed one."""
    parent, levels = spans.parent, list(by_depth(spans.nesting))
    below = np.zeros(len(rule), np.bool_)
    has_children = np.zeros(len(rule), np.bool_)
    for places in reversed(levels):
        inner = places[parent[places] != NONE]
        outer = parent[inner]
        has_children[outer] = True
        counted = works[inner] & np.isin(rule[inner], (COUNTED, OTHERWISE))
        full = counted | (rule[inner] == NEVER) | below[inner]
        below[outer[full]] = True
    settled = rule.copy()
    settled[rule == OUTER] = np.where(below, OPEN, UNKNOWN)[rule == OUTER]
    settled[rule == OTHERWISE] = np.where(below, OPEN, COUNTED)[rule == OTHERWISE]
    settled[rule == LEAF] = np.where(has_children, OPEN, UNKNOWN)[rule == LEAF]
    closed = np.zeros(len(rule), np.bool_)
    for places in levels:
        inner = places[parent[places] != NONE]
        closed[inner] = closed[parent[inner]] | np.isin(settled[parent[inner]], CLOSING)
    settled[rule == PARTLY] = UNKNOWN
    return settled, closed
