"""How long the nodes of an ONNX graph take, from a profile that is slower than the bare call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from torchgauge.readers.onnxruntime_profile import RecordedCall, RecordedCalls

# Of the calls, the quickest: what interrupts a call is not the model's.
QUIET = 0.5
# How many times a node's recording may cost what it does in a graph of tiny nodes: a model that is
# larger than the caches makes it dearer.
LEAST_FACTOR, MOST_FACTOR = 0.5, 5.0


@dataclasses.dataclass(frozen=True)
class RecordingCost:
    """Seconds by which the profiler prolongs a node, and what a bare call takes beside its nodes.

    `node` and `tensor`: for each node, and for each of its inputs and outputs. `call` and `value`:
    of a bare call without nodes, and for each input and output of the model.
    """

    node: float
    tensor: float
    call: float
    value: float


@dataclasses.dataclass(frozen=True)
class NodeTimes:
    """Seconds of a bare call by node, and of its remainder that is in no node; they add up to it.

    `calls` is how often each ran in a call. `per_node` is what recording a node of this model
    takes on average, `calibrated` what it takes in a graph of tiny nodes. `scale` is the time of
    the nodes in a bare call over what the profile says of it without the costs. `kernels` has
    (node, kernel, ns of each of its calls) of device work in `recorded_calls` calls.
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
    durations: Sequence[float],
    bare: Sequence[float],
    cost: RecordingCost,
    values: int,
) -> NodeTimes:
    """Return the nodes' times of a call with nothing attached, of which `bare` has the seconds.

    `durations` are those of the recorded calls, as their caller timed them; both took turns.
    `values` is the number of the model's inputs and outputs. A node's time lasts until the next
    one begins, what the runtime does between them included: begins are rounded down to
    microseconds, and so the mean of their differences has no bias, while the durations in the
    file, of which many are 0, are half a microsecond short each. What the recording adds to the
    nodes is what they take longer than a bare call without its calibrated remainder; it is shared
    by what a node costs in graphs of tiny nodes.
    """
    quiet = _quietest(durations)
    tensors = np.array([node.tensors for node in recorded.nodes], dtype=np.float64)
    tiny = cost.node + cost.tensor * tensors
    spans, records, calls = (np.zeros(len(recorded.nodes)) for _ in range(3))
    for number in quiet:
        for node, span, recorded_nodes in own_spans(recorded.calls[number]):
            spans[node] += span * 1e-6
            calls[node] += 1
            records[node] += sum(tiny[other] for other in recorded_nodes)
    spans, records, calls = (sums / max(1, len(quiet)) for sums in (spans, records, calls))
    quiet_bare = float(np.mean(np.asarray(bare)[_quietest(bare)]))
    outside = min(quiet_bare, cost.call + cost.value * values)
    inside, recording = quiet_bare - outside, float(records.sum())
    factor = (float(spans.sum()) - inside) / recording if recording else 1.0
    factor = min(MOST_FACTOR, max(LEAST_FACTOR, factor))
    own = np.maximum(0.0, spans - factor * records)
    scale = inside / float(own.sum()) if own.any() else 0.0
    slower = float(np.median(bare)) / quiet_bare
    ran = max(1.0, float(calls.sum()))
    return NodeTimes(
        seconds=own * scale * slower,
        calls=np.rint(calls).astype(np.int64),
        outside=outside * slower if own.any() else float(np.median(bare)),
        per_node=factor * recording / ran,
        calibrated=recording / ran,
        scale=scale,
        kernels=_kernels(recorded, quiet),
        recorded_calls=max(1, len(quiet)),
    )


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


def _quietest(durations: Sequence[float]) -> list[int]:
    order = np.argsort(np.asarray(durations), kind="stable").tolist()
    return order[: max(1, round(QUIET * len(order)))]


def _kernels(
    recorded: RecordedCalls, quiet: Sequence[int]
) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
    durations: dict[tuple[int, str], list[int]] = {}
    for number in quiet:
        for node, name, duration in recorded.calls[number].kernels:
            durations.setdefault((node, name), []).append(duration * 1000)
    return tuple((*key, tuple(sorted(times))) for key, times in durations.items())
