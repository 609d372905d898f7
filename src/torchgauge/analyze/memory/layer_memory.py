"""Memory by layer and operator: what each allocated, freed and retained, in bytes.

An allocation or a free belongs to the innermost operator or layer that is running on its thread;
what runs in neither, to the bucket of what is outside the model. A free of a block that is older
than the recording is left out: what is reported of it may be another block's size.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple, cast

import numpy as np

from torchgauge.analyze.memory.allocations import Blocks, pair
from torchgauge.analyze.timeline.attribution import NONE, PHASES, Spans
from torchgauge.analyze.timeline.call_tree import MODEL
from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL, NodeTable
from torchgauge.records.timeline.node import Kind, TreeRow
from torchgauge.records.trace.events import Events, Integers, MemoryEvents


class LayerMemory(NamedTuple):
    """The rows with the figures of one step, and how many blocks were freed unseen."""

    rows: tuple[TreeRow, ...]
    lost: int


def layer_memory(
    events: Events,
    spans: Spans,
    table: NodeTable,
    step: re.Pattern[str],
    *,
    device: tuple[int, int],
    parameters: Sequence[int | None],
    outputs: Collection[int] | None = None,
) -> LayerMemory:
    """Return a row for each node of the table with its own figures in the step that matches.

    `device` is the allocator's by torch's numbers of type and index: (0, −1) is the CPU. `outputs`
    are the addresses of what the model returned; with them, what its forward pass left for the
    backward pass is told. `parameters` are elements by layer. `peak` is that of a layer's largest
    call, recomputation included.
    """
    recorded = events.memory.on_device(*device)
    blocks = pair(recorded)
    nodes = _nodes(recorded, spans, table)
    names = events.name.take(spans.row)
    span = int(np.flatnonzero(names.where(lambda name: step.fullmatch(name) is not None))[0])
    inside = slice(*(position + 1 for position in _events_of(blocks, spans, span)))
    sizes = _sizes(recorded, blocks)[inside]
    count = len(table.nodes)
    allocations = _by_node(nodes[inside], np.maximum(sizes, 0), count).tolist()
    allocated = _by_node(nodes[inside], sizes, count).tolist()
    peaks = _peaks(blocks, spans, table)
    retained: list[int | None] = [None] * count
    if outputs is not None:
        retained = _retained(blocks, nodes, spans, table, outputs)
    rows = tuple(
        TreeRow(
            name=node.name,
            kind=cast("Kind", node.kind),
            parent=node.parent,
            calls=int(table.calls[number].sum()),
            path=node.path,
            type=node.type,
            phase=PHASES[node.phase] if node.phase >= 0 else "",
            shapes=node.shapes,
            allocations=allocations[number],
            allocated=allocated[number],
            peak=peaks[number],
            retained=retained[number],
            parameters=parameters[number] if number < len(parameters) else None,
        )
        for number, node in enumerate(table.nodes)
    )
    return LayerMemory(rows, blocks.lost)


def _nodes(recorded: MemoryEvents, spans: Spans, table: NodeTable) -> Integers:
    """Return the node of each event."""
    inner_spans = spans.nesting.innermost_at(recorded.time, recorded.thread)
    by_event = np.where(inner_spans == NONE, NONE, table.of_span[inner_spans])
    names = [node.name if node.kind == "bucket" else "" for node in table.nodes]
    return np.where(by_event == NONE, names.index(OUTSIDE_MODEL), by_event)


def _sizes(recorded: MemoryEvents, blocks: Blocks) -> Integers:
    """Return the size of each event, 0 for frees of blocks that were not seen to be allocated."""
    paired = recorded.size > 0
    paired[blocks.free_position[blocks.free_position < len(paired)]] = True
    return np.where(paired, recorded.size, 0)


def _by_node(nodes: Integers, sizes: Integers, count: int) -> Integers:
    totals = np.zeros(count, np.int64)
    np.add.at(totals, nodes, sizes)
    return totals


def _events_of(blocks: Blocks, spans: Spans, span: int) -> tuple[int, int]:
    """Return the positions of the last events before a span begins and before it ends."""
    start, end = spans.nesting.start[span], spans.nesting.end[span]
    return blocks.position(int(start)), blocks.position(int(end))


def _peaks(blocks: Blocks, spans: Spans, table: NodeTable) -> list[int | None]:
    change = np.zeros(len(blocks.times) + 1, np.int64)
    np.add.at(change, blocks.allocation_position + 1, blocks.size)
    freed = blocks.free_position < len(blocks.times)
    np.subtract.at(change, blocks.free_position[freed] + 1, blocks.size[freed])
    alive = np.cumsum(change)  # at p + 1 what is alive after event p
    peaks: list[int | None] = [None] * len(table.nodes)
    for span in np.flatnonzero(spans.is_layer & (table.of_span != NONE)).tolist():
        first, last = _events_of(blocks, spans, span)
        peak = int(alive[first + 1 : last + 2].max() - alive[first + 1])
        node = int(table.of_span[span])
        peaks[node] = max(peak, peaks[node] or 0)
    return peaks


def _retained(
    blocks: Blocks, nodes: Integers, spans: Spans, table: NodeTable, outputs: Collection[int]
) -> list[int | None]:
    """Return what the model's forward left alive, at the nodes that allocated it.

    What it freed of older blocks is taken off where it was freed: a layer that replaces what it
    keeps retains nothing. So the sum is what is alive after the forward pass, less what was before,
    less the outputs.
    """
    count = len(table.nodes)
    calls = np.flatnonzero(spans.is_layer & (table.of_span == MODEL))
    if not len(calls):
        return [None] * count
    call = int(calls[np.argmin(spans.nesting.start[calls])])
    was, now = (blocks.alive(position) for position in _events_of(blocks, spans, call))
    retained = now & ~was & ~np.isin(blocks.address, list(outputs))
    freed = was & ~now
    net_sizes = _by_node(nodes[blocks.allocation_position[retained]], blocks.size[retained], count)
    net_sizes -= _by_node(nodes[blocks.free_position[freed]], blocks.size[freed], count)
    return [int(size) for size in net_sizes]
