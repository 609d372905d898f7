"""A recording with the names of its layers: which one every span belongs to, on host and device."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.launches import launched
from torchgauge.records.trace.events import Coded, Events


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
        LayerName(layer.path or layer.name, tree.type(number))
        for number, layer in enumerate(tree.layers)
    )
    return NamedSpans(events, Coded(codes, names), is_call)
