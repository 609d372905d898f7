"""Where each event of a recording belongs: its step, layer, phase and operator, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.analyze.attribution import NONE, PHASES, by_depth
from torchgauge.analyze.host_work import operators
from torchgauge.analyze.recording import Recording
from torchgauge.model.events import ABSENT, Coded, Integers, Rows


def belonging(of: Recording) -> dict[str, Coded[str] | Integers]:
    """Return the columns by name: spans first, then allocations, then ends of arrows.

    The operator is the outermost of those within one another, as the user called it. What stands
    in none is absent, and all is of arrows but their step.
    """
    memory, arrows = of.events.memory, len(of.events.flows.time)
    around = of.around(memory.time, memory.thread)
    span = np.concatenate([of.span, around, np.full(arrows, NONE)])
    time = np.concatenate([of.time, memory.time, of.events.flows.time])
    layers = tuple(one.path or one.name for one in of.modules.tree.layers)
    return {
        "step": of.step(time),
        "layer": _coded(of.layer(span), layers),
        "phase": _coded(np.append(of.spans.phase, NONE)[span], PHASES),
        "operator": _operators(of, span),
    }


def _coded(codes: Integers, values: tuple[str, ...]) -> Coded[str]:
    return Coded(codes.astype(np.int32), values)


def _operators(of: Recording, span: Rows) -> Coded[Any]:
    names = of.events.name.take(of.spans.row)
    operator, parent = names.where(operators(of.events)), of.spans.parent
    outermost = np.where(operator, np.arange(len(parent)), NONE)
    for places in by_depth(of.spans.nesting):
        inner = places[operator[places] & (parent[places] != NONE)]
        inner = inner[operator[parent[inner]]]
        outermost[inner] = outermost[parent[inner]]
    return Coded(np.append(names.codes, ABSENT)[np.append(outermost, NONE)[span]], names.values)
