"""The step, layer, phase and operator of each event of a recording, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, PHASES, by_depth
from torchgauge.analyze.timeline.host_work import operators
from torchgauge.analyze.trace.recording import Recording
from torchgauge.records.trace.events import ABSENT, Coded, Integers, Rows


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
