"""Host time between operators by line: samples of the running line beside a recording.

A sample is due at a time and taken at the next moment at which Python runs: where an operator runs
when it is due, it is taken after that. Since the recording says when operators ran, time in them
counts for no line: a sample stands for the mean time between two of them if it was due outside of
operators, and for the time outside of operators until it was taken, which nothing else samples.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.attribution import NONE, Spans
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.timeline.tree import OUTSIDE_MODEL
from torchgauge.records.timeline.tree import LineTime, Tree
from torchgauge.records.trace.events import Integers


class Spot(NamedTuple):
    """A line of the user's source."""

    file: str
    line: int


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """When samples were due and captured, in ns as the recording counts them; one spot for each.

    A spot is None where no line of the user's ran. `interval` is the mean time in ns from one
    sample's end to when the next is due, `thread` the code of the sampled thread in the events.
    """

    due: Integers
    captured: Integers
    spots: Sequence[Spot | None]
    interval: float
    thread: int


def line_times(
    samples: Samples,
    spans: Spans,
    is_step: np.ndarray,
    layers: CallTree,
    tree: Tree,
    source: Callable[[Spot], str],
) -> tuple[LineTime, ...]:
    """Return the lines, most time first: those of a layer share what it took outside of operators.

    `tree` says how long that is, in one step without the sampling; what a layer's samples found in
    no line of the user's stays in the layer alone. `is_step` are the spans of whole steps.
    """
    # Where neither a layer nor an operator of its runs, the step is the innermost span.
    python = spans.is_layer | is_step
    span_of_sample, weight = _weights(samples, spans, python)
    weights: defaultdict[tuple[str, Spot], float] = defaultdict(float)
    counts: Counter[tuple[str, Spot]] = Counter()
    layer_totals: defaultdict[str, float] = defaultdict(float)
    for spot, span, amount in zip(
        samples.spots, span_of_sample.tolist(), weight.tolist(), strict=True
    ):
        if span == NONE or not amount:
            continue
        layer = _name(layers, int(spans.layer[span]))
        layer_totals[layer] += amount
        if spot is not None:
            weights[layer, spot] += amount
            counts[layer, spot] += 1
    own, total = own_times(tree), tree.root.host_time or 0.0
    records = []
    for (layer, spot), amount in weights.items():
        time = own.get(layer, 0) * 1e-9 * amount / layer_totals[layer]
        records.append(
            LineTime(
                file=spot.file,
                line=spot.line,
                layer=layer,
                time=time,
                share=time / total if total else 0.0,
                samples=counts[layer, spot],
                source=source(spot),
            )
        )
    return tuple(sorted(records, key=lambda record: -record.time))


def _weights(samples: Samples, spans: Spans, python: np.ndarray) -> tuple[Integers, np.ndarray]:
    """Return for each sample the span of Python's that it is in, NONE for none, and its ns."""
    thread = np.full(len(samples.due), samples.thread)
    due = spans.nesting.innermost_at(samples.due, thread)
    captured = spans.nesting.innermost_at(samples.captured, thread)
    inside = np.append(python, False)
    span_of_sample = np.where(inside[due], due, np.where(inside[captured], captured, NONE))
    until = _python_time(samples, spans, python)
    late = until(samples.captured) - until(samples.due)
    return span_of_sample, np.where(inside[due], samples.interval, 0.0) + late


def _python_time(
    samples: Samples, spans: Spans, python: np.ndarray
) -> Callable[[Integers], np.ndarray]:
    """Return a function of times: how many ns until then the thread ran in Python's spans."""
    on_thread = spans.thread == samples.thread
    edges = np.unique(
        np.concatenate([spans.nesting.start[on_thread], spans.nesting.end[on_thread]])
    )
    if not len(edges):
        return np.zeros_like
    middle = edges[:-1] + np.diff(edges) // 2
    within = spans.nesting.innermost_at(middle, np.full(len(middle), samples.thread))
    python_time = np.where(np.append(python, False)[within], np.diff(edges), 0)
    total = np.concatenate([[0], np.cumsum(python_time)])
    return lambda times: np.interp(times, edges, total)


def _name(layers: CallTree, layer: int) -> str:
    if layer == NONE:
        return OUTSIDE_MODEL
    called = layers.layers[layer]
    return called.path or called.name


def own_times(tree: Tree) -> Mapping[str, int]:
    """Return the ns of layers, and of the step outside of the model, without their operators.

    Layers that are called from several places are one here.
    """
    own: Counter[str] = Counter()
    for row in tree.rows:
        if row.kind in ("model", "layer"):
            own[row.path or row.name] += row.host or 0
        elif row.name == OUTSIDE_MODEL:
            own[OUTSIDE_MODEL] += row.host or 0
    return own
