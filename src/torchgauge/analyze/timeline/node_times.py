"""How long the nodes of an ONNX graph take, from a profile that is slower than the bare call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from torchgauge.readers.onnxruntime_profile import RecordedCall, RecordedCalls

# What interrupts a call is not the model's: quick calls tell how long nodes take, bare or recorded.
QUICK = 0.1
COARSE = 20.0  # µs, above which rounding to whole ones does not count
# How many times a node's recording costs what it does in a graph of tiny nodes, and how far that
# differs between models: a model that is larger than the caches makes it dearer.
USUAL_FACTOR, FACTOR_SPREAD = 1.1, 0.3
LEAST_FACTOR, MOST_FACTOR = 0.5, 5.0
# How well the sum of the recorded nodes and a bare call are known, of the call.
CALL_SPREAD = 0.02


@dataclasses.dataclass(frozen=True)
class RecordingCost:
    """Seconds by which the profiler prolongs a node, and what a bare call takes beside its nodes.

    `node` and `tensor`: for each node, and for each of its inputs and outputs. `call` and `value`:
    of a bare call without nodes, and for each input and output of the model. `tiny`: a node that
    does next to nothing, in a bare call.
    """

    node: float
    tensor: float
    call: float
    value: float
    tiny: float = 0.0


class GraphPart(NamedTuple):
    """Recorded nodes that run one after the other, and their seconds in a bare call together."""

    nodes: tuple[int, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class NodeTimes:
    """Seconds of a bare call by node, and of its remainder that is in no node; they add up to it.

    `calls` is how often each ran in a call. `per_node` is what recording a node of this model
    takes on average, `calibrated` what it takes in a graph of tiny nodes. `scale` is the time of
    the nodes in a bare call over what the profile says of it without the costs. `kernels` has
    (node, kernel, ns of each of its calls) of device work in all `recorded_calls`.
    """

    seconds: np.ndarray
    calls: np.ndarray
    outside: float
    per_node: float
    calibrated: float
    scale: float
    kernels: tuple[tuple[int, str, tuple[int, ...]], ...] = ()
    recorded_calls: int = 1


def node_times(
    recorded: RecordedCalls,
    bare: Sequence[float],
    cost: RecordingCost,
    values: int,
    parts: Sequence[GraphPart] = (),
) -> NodeTimes:
    """Return the nodes' times of a call with nothing attached, of which `bare` has the seconds.

    Recorded and bare calls took turns. `values` is the number of the model's inputs and outputs.
    A node's time lasts until the next one begins, what the runtime does between them included:
    begins are rounded down to microseconds, and so the mean of their differences has no bias,
    while the durations in the file, of which many are 0, are half a microsecond short each. What
    the recording adds to the nodes is what they take longer than a bare call without its
    calibrated remainder; it is shared by what a node costs in graphs of tiny nodes. So it is in
    each of `parts` where bare calls tell how long these take; else the whole graph is one.
    """
    count = len(recorded.nodes)
    tiny = cost.node + cost.tensor * np.array([node.tensors for node in recorded.nodes], float)
    spans, calls, records = (np.zeros((len(recorded.calls), count)) for _ in range(3))
    for number, call in enumerate(recorded.calls):
        for node, microseconds, recorded_nodes in own_spans(call):
            spans[number, node] += microseconds
            calls[number, node] += 1
            records[number, node] += sum(tiny[other] for other in recorded_nodes)
    span = np.array([_typical(spans[:, node]) for node in range(count)]) * 1e-6
    record = records.mean(axis=0) if len(records) else np.zeros(count)
    # No node takes less than one that does nothing.
    floor = np.minimum(span, cost.tiny * calls.mean(axis=0)) if len(calls) else np.zeros(count)
    typical, quick = float(np.median(bare)), float(np.quantile(bare, QUICK))
    outside = min(quick, cost.call + cost.value * values)
    inside, recording = quick - outside, float(record.sum())
    own, unscaled, taken_off = np.zeros(count), 0.0, 0.0
    in_parts = sum(part.seconds for part in parts)
    for part in parts if in_parts else (GraphPart(tuple(range(count)), inside),):
        nodes = np.array(part.nodes, int)
        seconds = part.seconds * inside / (in_parts or inside or 1.0)
        costs = record[nodes]
        added = float(span[nodes].sum()) - seconds
        factor = _factor(added, float(costs.sum()), CALL_SPREAD * quick)
        own[nodes] = np.maximum(floor[nodes], span[nodes] - factor * costs)
        total = float(own[nodes].sum())
        own[nodes] *= seconds / total if total else 0.0
        unscaled, taken_off = unscaled + total, taken_off + factor * float(costs.sum())
    scale = float(own.sum()) / unscaled if unscaled else 0.0
    outside = quick - float(own.sum())
    ran = max(1.0, float(calls.sum()) / max(1, len(calls)))
    return NodeTimes(
        seconds=own * typical / quick,
        calls=np.rint(np.median(calls, axis=0)).astype(np.int64) if len(calls) else calls,
        outside=outside * typical / quick,
        per_node=taken_off / ran,
        calibrated=recording / ran,
        scale=scale,
        kernels=_kernels(recorded),
        recorded_calls=max(1, len(recorded.calls)),
    )


def _typical(spans: np.ndarray) -> float:
    """Return a node's time in quick calls: a quantile, of a few whole microseconds their mean."""
    if not len(spans):
        return 0.0
    middle = float(np.median(spans))
    if middle > COARSE:
        return float(np.quantile(spans, QUICK))
    return float(spans[spans <= middle + 1].mean())


def _factor(added: float, calibrated: float, spread: float) -> float:
    """Return how many times the calibrated cost recording has: by what it added, if that is known.

    The two are weighted by how well each is known.
    """
    if not calibrated:
        return 1.0
    weight = (FACTOR_SPREAD * calibrated / spread) ** 2 if spread else 1.0
    factor = (USUAL_FACTOR + weight * added / calibrated) / (1 + weight)
    return min(MOST_FACTOR, max(LEAST_FACTOR, factor))


def own_spans(call: RecordedCall) -> list[tuple[int, int, list[int]]]:
    """Return of each event (node, µs until the next begins, nodes whose recording is in there).

    A node is recorded when it ends. That of a node with a graph inside is after the last node of
    that graph: its cost is in that one's span.
    """
    order = sorted(range(len(call.nodes)), key=lambda number: (call.nodes[number][1], number))
    begins = [call.nodes[number][1] for number in order] + [call.end]
    spans: list[tuple[int, int, list[int]]] = []
    position = {number: place for place, number in enumerate(order)}
    for place, number in enumerate(order):
        spans.append((call.nodes[number][0], max(0, begins[place + 1] - begins[place]), []))
    last = 0
    for number, (node, _, _) in enumerate(call.nodes):  # as they ended
        last = max(last, position[number])
        spans[last][2].append(node)
    return spans


def _kernels(recorded: RecordedCalls) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
    durations: dict[tuple[int, str], list[int]] = {}
    for call in recorded.calls:
        for node, name, duration in call.kernels:
            durations.setdefault((node, name), []).append(duration * 1000)
    return tuple((*key, tuple(sorted(times))) for key, times in durations.items())
