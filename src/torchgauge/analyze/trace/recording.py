"""A recorded trace with the time, step and layer that each of its events counts for.

Host code counts when it begins. Device work counts when it was launched, or when it begins where
the trace has no launch of it; a range on the device as the host's range of the same name and
`External id`. So whatever part of a trace is taken, work goes where its launch goes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, PHASES, Spans, by_depth
from torchgauge.analyze.timeline.host_work import operators
from torchgauge.analyze.timeline.launches import KINDS, Launched, first_positions, launched
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.timeline.steps import marked
from torchgauge.analyze.trace.device_work import STEP, attributed
from torchgauge.readers.kineto.categories import is_launch
from torchgauge.records.trace.events import ABSENT, Coded, Codes, Events, Integers, Rows


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Events with their layers and launches.

    `time` (ns) and `span` have one entry for each event: when it counts, and the place among
    `spans` of the host's span that it is or runs in, NONE outside of all.
    """

    events: Events
    modules: Modules
    spans: Spans
    work: Launched
    time: Integers
    span: Rows

    def around(self, time: Integers, thread: Codes) -> Rows:
        """Return the place of the innermost of the host's spans around each moment."""
        return self.spans.nesting.innermost_at(time, thread)

    def layer(self, span: Rows) -> Integers:
        """Return the layer of each of these spans, NONE outside of layers."""
        if not len(self.modules):  # all is the model's, which is no layer that was recorded
            return np.full(len(span), NONE)
        return np.append(self.spans.layer, NONE)[span]

    def step(self, time: Integers) -> Integers:
        """Return the number of the marked step that each time is in, ABSENT outside of them."""
        events, rows = self.events, self.spans.row
        names = events.name.take(rows)
        mark = names.where(lambda name: STEP.fullmatch(name) is not None)
        steps = marked(mark, events.start[rows], (events.start + events.duration)[rows])
        texts = (STEP.fullmatch(str(names[span])) for span in steps.span.tolist())
        numbers = [int(text[1]) for text in texts if text]
        return np.array([*numbers, ABSENT], np.int64)[steps.containing(time)]


def recording(events: Events) -> Recording:
    """Return the events with their layers and launches."""
    modules, spans = attributed(events)
    work = launched(events, spans)
    time = events.start.copy()
    begun = work.call[work.launched]
    time[work.row[work.launched]] = events.start[begun]
    span = np.full(len(events), NONE)
    span[spans.row] = np.arange(len(spans.row))
    span[work.row] = work.span
    on_device = events.category.where(lambda name: name in (*KINDS, "gpu_user_annotation"))
    other = np.flatnonzero((span == NONE) & ~on_device)
    is_call = events.category.where(is_launch)[other]
    # A call's ends may lie outside its operator by rounding; a function begins where it belongs.
    moment = events.start[other] + np.where(is_call, events.duration[other] // 2, 0)
    span[other] = spans.nesting.innermost_at(moment, events.thread.codes[other])
    device_rows, host_rows = _ranges(events)
    time[device_rows], span[device_rows] = events.start[host_rows], span[host_rows]
    return Recording(events, modules, spans, work, time, span)


def _ranges(events: Events) -> tuple[Rows, Rows]:
    """Return the ranges on devices that the host has too, and the host's, as places in events."""
    table = events.operators
    category = events.category.take(table.row)
    on_device = np.flatnonzero(category.where(lambda name: name == "gpu_user_annotation"))
    on_host = np.flatnonzero(category.where(lambda name: name == "user_annotation"))
    on_host = on_host[np.argsort(table.external_id[on_host], kind="stable")]
    index = first_positions(table.external_id[on_host], table.external_id[on_device])
    device_rows, host_rows = table.row[on_device], np.append(table.row[on_host], NONE)[index]
    names = events.name.codes
    matched = (
        (index != NONE)
        & (table.external_id[on_device] != ABSENT)
        & (names[device_rows] == names[host_rows])
    )
    return device_rows[matched], host_rows[matched]


def event_locations(recording: Recording) -> dict[str, Coded[str] | Integers]:
    """Return the columns by name: spans first, then allocations, then ends of arrows.

    The operator is the outermost of those within one another, as the user called it. What stands
    in none is absent, and all is of arrows but their step.
    """
    memory, arrows = recording.events.memory, len(recording.events.flows.time)
    around = recording.around(memory.time, memory.thread)
    span = np.concatenate([recording.span, around, np.full(arrows, NONE)])
    time = np.concatenate([recording.time, memory.time, recording.events.flows.time])
    layers = tuple(layer.path or layer.name for layer in recording.modules.tree.layers)
    return {
        "step": recording.step(time),
        "layer": _coded(recording.layer(span), layers),
        "phase": _coded(np.append(recording.spans.phase, NONE)[span], PHASES),
        "operator": _operators(recording, span),
    }


def _coded(codes: Integers, values: tuple[str, ...]) -> Coded[str]:
    return Coded(codes.astype(np.int32), values)


def _operators(recording: Recording, span: Rows) -> Coded[Any]:
    names = recording.events.name.take(recording.spans.row)
    operator, parent = names.where(operators(recording.events)), recording.spans.parent
    outermost = np.where(operator, np.arange(len(parent)), NONE)
    for level in by_depth(recording.spans.nesting):
        inner = level[operator[level] & (parent[level] != NONE)]
        inner = inner[operator[parent[inner]]]
        outermost[inner] = outermost[parent[inner]]
    return Coded(np.append(names.codes, ABSENT)[np.append(outermost, NONE)[span]], names.values)
