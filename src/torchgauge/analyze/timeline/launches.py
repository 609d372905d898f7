"""Launches of device work: kernel → launch → the span of the host around it.

The launch is the runtime or driver call of the same `correlation`; `External id` is not used, since
its numbers collide and it names the wrong operator for communication. The span is the innermost one
of the launch's thread around the middle of the launch: its ends may lie outside by rounding and by
the error between the two clocks, its middle does not. Work of a CUDA graph
that was joined to its capture belongs to the operator that it was captured in.
"""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.records.trace.events import ABSENT, Coded, Events, Integers, Rows

KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")


def is_graph_launch(name: str) -> bool:
    """Return whether a call of this name launches a CUDA graph."""
    return _GRAPH_LAUNCH.match(name) is not None


@dataclasses.dataclass(frozen=True, eq=False)
class Launched:
    """Device work, first launched first; all columns have one entry for each piece.

    `row` is its place in the events, `entry` that in their `device_work`, ABSENT where the trace
    has no arguments for it. `launched`: the trace has its launch, which is at the place `call` in
    the events; `time` (ns) is when that was, or else when the work began. `span` is the place of
    the host's span around the launch. Both are NONE where there is none.
    """

    row: Rows
    entry: Rows
    call: Rows
    launched: np.ndarray
    time: Integers
    span: Rows


def launched(events: Events, spans: Spans) -> Launched:
    """Return all device work with its launches."""
    row = np.flatnonzero(events.category.where(lambda name: name in KINDS))
    entry = first_positions(events.device_work.row, row)
    correlation = np.append(events.device_work.correlation, ABSENT)[entry]
    order = np.argsort(events.launches.correlation, kind="stable")
    indices = first_positions(events.launches.correlation[order], correlation)
    indices[correlation <= 0] = NONE  # 0 is no correlation either
    launch = np.append(events.launches.row[order], NONE)[indices]
    has_launch = launch != NONE
    time, span = events.start[row], np.full(len(row), NONE)
    calls = launch[has_launch]
    time[has_launch] = events.start[calls] + events.duration[calls] // 2
    span[has_launch] = spans.nesting.innermost_at(time[has_launch], events.thread.codes[calls])
    if len(events.captured.row):
        place = np.full(len(events), NONE)
        place[spans.row] = np.arange(len(spans.row))
        span[np.searchsorted(row, events.captured.row)] = place[events.captured.operator]
    by_time = np.argsort(time, kind="stable")

    def ordered(column: Rows) -> Rows:
        return column[by_time].astype(np.int32)

    return Launched(
        ordered(row),
        ordered(entry),
        ordered(launch),
        has_launch[by_time],
        time[by_time],
        ordered(span),
    )


def has_all_launches(events: Events) -> bool:
    """Whether work without a launch was launched before the recording began.

    Not where the file has launches of none (JAX on a TPU) or of some alone (Proton: in a graph that
    of the first kernel).
    """
    recorder = events.metadata.recorder
    return recorder != "Proton" and (recorder != "JAX" or len(events.launches.row) > 0)


def first_positions(ascending: Integers, values: Integers) -> Rows:
    """Return the first position of each value among ascending ones, NONE where it is not."""
    indices = np.searchsorted(ascending, values)
    hit = np.append(ascending, 0)[indices] == values
    return np.where(hit & (indices < len(ascending)), indices, NONE)


class LayerName(NamedTuple):
    """A layer's qualified name (the model's class for the model itself), and its class."""

    name: str
    kind: str


@dataclasses.dataclass(frozen=True, eq=False)
class NamedSpans:
    """Events with the layer of each span, absent where none has it; `is_call` are layers' calls."""

    events: Events
    layer: Coded[LayerName]
    is_call: np.ndarray


def named_spans(events: Events, spans: Spans, tree: CallTree) -> NamedSpans:
    """Return the events with their layers; device work has that of its launch."""
    codes = np.full(len(events), NONE, np.int32)
    codes[spans.row] = spans.layer
    work = launched(events, spans)
    codes[work.row] = np.append(spans.layer, NONE)[work.span]
    is_call = np.zeros(len(events), np.bool_)
    is_call[spans.row] = spans.is_layer
    names = tuple(
        LayerName(layer.path or layer.name, tree.module(number).kind)
        for number, layer in enumerate(tree.layers)
    )
    return NamedSpans(events, Coded(codes, names), is_call)
