"""From spans to the table of nodes: layers, operators and kernels below them, buckets."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

import numpy as np

from torchgauge.analyze.timeline.attribution import (
    NONE,
    OPTIMIZER,
    PHASES,
    ZERO_GRAD,
    Spans,
    by_depth,
)
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.device_time import (
    BEFORE,
    COMMUNICATION,
    COPIES,
    copied_outside,
    device_nodes,
    device_use,
)
from torchgauge.analyze.timeline.launches import has_all_launches, launched
from torchgauge.analyze.timeline.steps import Steps, marked, single_step
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.analyze.work.recorded_work import input_types
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import DeviceUse
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.records.trace.events import Coded, Events, Integers, Rows

ENGINE = "autograd engine"
OPTIMIZING = "optimizer"
OUTSIDE_MODEL = "outside the model"
BUCKETS = (OPTIMIZING, ENGINE, OUTSIDE_MODEL, COMMUNICATION, COPIES, BEFORE)


@dataclasses.dataclass
class NodeDraft:
    """A node of the tree before its figures are known."""

    name: str
    kind: str
    parent: int
    phase: int = NONE
    shapes: str = ""
    dtype: str = ""
    layer: int = NONE
    path: str = ""
    type: str = ""
    source: str = ""
    shortest: int | None = None
    kernel: Kernel | None = None
    flops: int | None = None
    unknown: int = 0
    bytes: int | None = None
    unknown_bytes: int = 0


@dataclasses.dataclass
class NodeTable:
    """All nodes: layers, buckets, operators, kernels.

    Of each its own `host` and `device` (ns) and `calls`, by step. `of_span` is the node of each
    span, NONE for those outside of every step. `device` is that of the work launched in the step,
    None where the recording has no device; `uses` says how busy devices were. `copying` has the
    nodes below "memory copies" of operators that are elsewhere, by their own nodes.
    """

    nodes: list[NodeDraft]
    host: np.ndarray
    calls: np.ndarray
    of_span: Integers
    device: np.ndarray | None = None
    uses: tuple[DeviceUse, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()
    copying: dict[int, int] = dataclasses.field(default_factory=dict)


def node_table(
    events: Events, spans: Spans, tree: CallTree, marks: re.Pattern[str], *, as_one: bool = False
) -> NodeTable:
    """Return the nodes of what was recorded inside the steps, whose spans `marks` matches.

    The sum of all nodes' `host` is the time of each step's span: what is in no layer, operator or
    gap of the autograd engine is in the bucket "outside the model". `as_one`: the whole recording
    is taken as one step, with what is outside of those marked. `device` is as in `device_time`.
    """
    nodes = _layers(tree)
    bucket = {name: len(nodes) + index for index, name in enumerate(BUCKETS)}
    nodes += [NodeDraft(name, "bucket", 0) for name in BUCKETS]
    nesting = spans.nesting
    names = events.name.take(spans.row)
    is_step = names.where(lambda name: marks.fullmatch(name) is not None)
    steps = marked(is_step, nesting.start, nesting.end)
    step = np.zeros(len(spans.row), np.int64) if as_one else steps.containing(nesting.start)
    base = np.where(spans.layer != NONE, spans.layer, bucket[OUTSIDE_MODEL])
    base[np.isin(spans.phase, (OPTIMIZER, ZERO_GRAD))] = bucket[OPTIMIZING]
    is_operator = ~(spans.is_layer | is_step)
    of_span = _place_operators(events, spans, names, nodes, base, is_operator & (step != NONE))
    of_span[step == NONE] = NONE
    for number, dtype in input_types(events, spans.row, of_span).items():
        nodes[number].dtype = dtype
    host = np.zeros((len(nodes), 1 if as_one else len(steps)), np.int64)
    calls = np.zeros_like(host)
    own = nesting.self_time.copy()
    _move_gaps(spans, steps, step, own, host[bucket[ENGINE]])
    inside = step != NONE
    np.add.at(host, (of_span[inside], step[inside]), own[inside])
    counted = inside & ~is_step
    np.add.at(calls, (of_span[counted], step[counted]), 1)
    table = NodeTable(nodes, host, calls, of_span)
    _add_device(table, events, spans, None if as_one else steps, bucket)
    return table


def _layers(tree: CallTree) -> list[NodeDraft]:
    return [
        NodeDraft(
            layer.name,
            "layer" if number else "model",
            layer.parent,
            layer=number,
            path=layer.path,
            type=tree.module(number).kind,
            source=tree.module(number).source,
        )
        for number, layer in enumerate(tree.layers)
    ]


def _place_operators(
    events: Events,
    spans: Spans,
    names: Coded[str],
    nodes: list[NodeDraft],
    base: Integers,
    is_operator: np.ndarray,
) -> Integers:
    """Add the operators' nodes and return the node of each span; `base` is where it belongs."""
    of_span = base.copy()
    shapes, codes, parents = _shapes(events, spans), names.codes, spans.nesting.parent
    most_names, most_shapes = len(names.values) + 1, len(events.operators.dims.values) + 1
    number_by_key: dict[int, int] = {}
    for level in by_depth(spans.nesting):
        members = level[is_operator[level]]
        members = members[np.argsort(spans.nesting.start[members], kind="stable")]
        parent = parents[members]
        inside = (parent != NONE) & is_operator[parent] & (base[parent] == base[members])
        above = np.where(inside, of_span[parent], base[members])
        key = (above * len(PHASES) + spans.phase[members]) * most_names + codes[members] + 1
        keys, first, inverse = np.unique(
            key * most_shapes + shapes[members] + 1, return_index=True, return_inverse=True
        )
        numbers = np.zeros(len(keys), np.int64)
        for number in np.argsort(first).tolist():  # as they were called
            span, node_key = int(members[first[number]]), int(keys[number])
            if node_key not in number_by_key:
                number_by_key[node_key] = len(nodes)
                dims = events.operators.dims.values[shapes[span]] if shapes[span] >= 0 else None
                text = "" if dims is None else _text(dims)
                around = int(above[first[number]])
                phase = int(spans.phase[span])
                nodes.append(NodeDraft(str(names[span]), "operator", around, phase, text))
            numbers[number] = number_by_key[node_key]
        of_span[members] = numbers[inverse]
    return of_span


def _add_device(
    table: NodeTable, events: Events, spans: Spans, steps: Steps | None, bucket: dict[str, int]
) -> None:
    """Add the nodes of device work; `steps` is None where all is one step."""
    work = launched(events, spans)
    if not len(work.row):
        return
    facts = Facts(events, work)
    if steps is None:
        step = np.zeros(len(work.row), np.int64)
        rows = np.concatenate([spans.row, work.row])
        steps = single_step(events.start[rows], events.start[rows] + events.duration[rows])
    else:
        step = steps.containing(work.time)
    copied = np.flatnonzero(copied_outside(spans, work, facts))
    for span in np.unique(work.span[copied]).tolist():
        if span != NONE and table.of_span[span] != NONE:
            _add_below_copies(table, int(table.of_span[span]), bucket[COPIES])
    none_of_host = np.zeros((len(table.nodes) - len(table.host), len(steps)), np.int64)
    table.host, table.calls = (
        np.vstack([figures, none_of_host]) for figures in (table.host, table.calls)
    )
    kernel_nodes = device_nodes(
        events,
        spans,
        work,
        facts,
        of_span=table.of_span,
        copying=table.copying,
        step=step,
        steps=len(steps),
        bucket=bucket,
        outside=bucket[OUTSIDE_MODEL],
    )
    table.nodes += [
        NodeDraft(node.name, "kernel", node.parent, node.phase, kernel=node.kernel)
        for node in kernel_nodes
    ]
    no_device_time = np.zeros_like(table.host)
    kernels = np.zeros((len(kernel_nodes), len(steps)), np.int64)
    table.host = np.vstack([table.host, kernels])
    table.calls = np.vstack([table.calls, *(node.calls for node in kernel_nodes)])
    table.device = np.vstack([no_device_time, *(node.time for node in kernel_nodes)])
    table.uses = tuple(device_use(events, work.row, facts.device, steps.begin, steps.end))
    device_kernels, joined = [node.kernel for node in kernel_nodes], len(events.captured.row)
    has_launches = has_all_launches(events)
    table.warnings = tuple(
        _device_warnings(device_kernels, has_launches=has_launches, joined=joined)
    )


def _add_below_copies(table: NodeTable, node: int, copies: int) -> None:
    """Add an operator, and those that it is in, below the bucket of copies."""
    nodes, chain = table.nodes, []
    while nodes[node].kind == "operator" and node not in table.copying:
        chain.append(node)
        node = nodes[node].parent
    above = table.copying.get(node, copies)
    for number in reversed(chain):
        table.copying[number] = len(nodes)
        nodes.append(dataclasses.replace(nodes[number], parent=above, phase=NONE))
        above = table.copying[number]


def _move_gaps(
    spans: Spans, steps: Steps, step: Integers, own: Integers, engine: np.ndarray
) -> None:
    """Move the engine's time between nodes from whose it seems to be to the bucket's row `engine`.

    Where the backward pass runs on a thread of its own, the thread that called it waits inside a
    span: that is not time of the span's own.
    """
    nesting = spans.nesting
    outer = nesting.parent == NONE
    backward = np.isin(spans.thread, np.unique(spans.thread[spans.is_node & outer]))
    waited = np.where(outer & backward, nesting.total_time, 0)
    next_node, gap = _gaps(spans, backward)
    counted = step[next_node] != NONE
    np.add.at(engine, step[next_node[counted]], gap[counted])
    np.add.at(waited, next_node[outer[next_node]], gap[outer[next_node]])
    within = ~outer[next_node]
    np.subtract.at(own, nesting.parent[next_node[within]], gap[within])
    mark = steps.containing(nesting.start)
    away = np.flatnonzero((waited > 0) & (mark != NONE))
    caller = spans.thread[steps.span[mark[away]]]
    waiting = nesting.innermost_at(nesting.start[away], caller)
    waits = (waiting != NONE) & (caller != spans.thread[away])
    np.subtract.at(own, waiting[waits], waited[away[waits]])
    np.maximum(own, 0, out=own)


def _gaps(spans: Spans, backward: np.ndarray) -> tuple[Rows, Integers]:
    """Return (spans, ns) of the engine's time between one node and the next on its thread.

    On a thread of its own (`backward`) the engine also waits for the next backward pass: that is no
    gap, and other threads begin something in it.
    """
    nesting = spans.nesting
    siblings = np.lexsort((nesting.parent, spans.thread))  # stable: as they began
    before, after = siblings[:-1], siblings[1:]
    adjacent = (
        spans.is_node[before]
        & spans.is_node[after]
        & (spans.thread[before] == spans.thread[after])
        & (nesting.parent[before] == nesting.parent[after])
        & (nesting.start[after] > nesting.end[before])
    )
    before, after = before[adjacent], after[adjacent]
    other_starts = np.sort(nesting.start[~backward])
    low = np.searchsorted(other_starts, nesting.end[before])
    high = np.searchsorted(other_starts, nesting.start[after])
    gap = (nesting.parent[after] != NONE) | (low == high)
    return after[gap], (nesting.start[after] - nesting.end[before])[gap]


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


def _device_warnings(
    kernels: Sequence[Kernel], *, has_launches: bool = True, joined: int = 0
) -> Iterator[MeasurementWarning]:
    """Yield the warnings about the device work of a recording.

    `has_launches`: it has the launches of all work that was launched in it. `joined` counts the
    work of CUDA graphs whose operators are known from their capture.
    """
    gpu_kernels = [kernel for kernel in kernels if kernel.work == "kernel"]
    unlaunched = [kernel for kernel in gpu_kernels if not kernel.launched]
    if unlaunched and has_launches:
        yield MeasurementWarning(
            id="launched-before",
            message=f"{_calls(unlaunched):,} of {_calls(gpu_kernels):,} kernels, "
            f"{_share(unlaunched, gpu_kernels)} of their time, "
            "have no launch in the recording: their layers are unknown.",
            cause="They were launched before the recording began, or their launch was lost.",
            remedy="Synchronize before the recording begins: torch.cuda.synchronize().",
        )
    graphs = [kernel for kernel in gpu_kernels if kernel.graph]
    if _calls(graphs) > joined:
        yield MeasurementWarning(
            id="cuda-graph",
            message=f"{_calls(graphs):,} of {_calls(gpu_kernels):,} kernels, "
            f"{_share(graphs, gpu_kernels)} of their time, "
            "ran from CUDA graphs: they belong to the launch of the graph.",
            cause="A graph is launched as one: layers and operators do not run on the host.",
            remedy="Record without CUDA graphs to see layers.",
        )


def _calls(kernels: Sequence[Kernel]) -> int:
    return sum(kernel.calls for kernel in kernels)


def _share(part: Sequence[Kernel], total: Sequence[Kernel]) -> str:
    time = [sum(sum(kernel.durations) for kernel in kernels) for kernels in (part, total)]
    return f"{time[0] / max(time[1], 1) * 100:.1f} %"
