"""How long parts of an ONNX graph take in bare calls, by running the graph up to each of its cuts.

The profiler evicts weights from the caches, so that nodes that read many take longer in a recorded
call. A value that goes on beyond a cut is read by a node that makes its shape: no output is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchgauge.analyze.onnx.origins import graph_indices
from torchgauge.analyze.timeline.node_times import QUICK, GraphPart, RecordingCost
from torchgauge.errors import InputError
from torchgauge.readers.onnxruntime_profile import RecordedCalls
from torchgauge.records.onnx.graph import Graph
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.runtimes.onnx_session import OnnxSession

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

CPU = "CPUExecutionProvider"
# Cuts are at equal shares of the time, of fewer in a large or slow graph, and around each node that
# takes more than a share.
SHARES = (12, 6, 3)
CALLS, WARM_UP, MIN_ROUNDS, MAX_ROUNDS = 8, 3, 5, 40
# The fewest rounds have to fit into this many times the limit.
LONGEST = 4
# All sessions on a graph hold their own weights.
MOST_BYTES = 2 << 30
# How much longer or shorter the optimised graph, opened again, may take than the model's own call.
TOLERANCE = 0.1


class RanGraph(NamedTuple):
    """The graph as it ran: its file, its nodes, those that were recorded, and about how long."""

    file: Path
    graph: Graph
    recorded: RecordedCalls
    seconds: np.ndarray

    def order(self) -> list[int]:
        """Return the recorded nodes in the order in which they run."""
        return [
            node for _, node in sorted((begin, n) for n, begin, _ in self.recorded.calls[0].nodes)
        ]


def graph_parts(
    model: OnnxSession,
    ran: RanGraph,
    cost: RecordingCost,
    inputs: Inputs,
    limit: float,
    now: Callable[[], int],
) -> list[GraphPart]:
    """Return the parts of a graph with their seconds in a bare call; none where it cannot be cut.

    It can where it runs node after node on the CPU. No round of calls begins after `limit` seconds.
    """
    order, index = ran.order(), graph_indices(ran.recorded.nodes, ran.graph)
    in_order = model.provider == CPU and "execution_mode" not in model.settings
    is_flat = all(node.container < 0 and node.calls == 1 for node in ran.graph.nodes)
    size = sum(file.stat().st_size for file in ran.file.parent.glob(f"{ran.file.stem}.*"))
    seconds = MIN_ROUNDS * CALLS * float(ran.seconds.sum())
    most_cuts = min(MOST_BYTES // max(1, size), LONGEST * limit / max(seconds, 1e-9)) - 2
    places_of_cuts = (cut_places(ran.seconds[order], shares) for shares in SHARES)
    cuts = next((cuts for cuts in places_of_cuts if len(cuts) <= most_cuts), [])
    if not (in_order and is_flat and cuts) or None in index:
        return []
    import onnx

    content = onnx.load(ran.file, load_external_data=False)
    sessions, remainders = list[OnnxSession](), list[float]()
    settings = {**model.settings, "graph_optimization_level": "ORT_DISABLE_ALL"}
    ends = [*cuts, len(order)]
    try:
        for end in ends:
            path = ran.file.with_name(f"part{end}.onnx")
            shapes, values = _write(content, {index[node] for node in order[:end]}, path)
            sessions.append(OnnxSession(path, model.options, settings))
            remainders.append(cost.call + cost.value * values + cost.tiny * shapes)
    except InputError:  # the runtime opens some of its own graphs only as they were optimised
        return []
    model_call, *quick = _quick_calls([model, *sessions], inputs, limit, now)
    if abs(quick[-1] / model_call - 1) > TOLERANCE:
        return []
    inside = np.diff([0.0, *np.maximum.accumulate(np.subtract(quick, remainders))])
    return [
        GraphPart(tuple(order[begin:end]), max(0.0, float(seconds)))
        for begin, end, seconds in zip([0, *cuts], ends, inside, strict=True)
    ]


def cut_places(seconds: Sequence[float] | np.ndarray, shares: int) -> list[int]:
    """Return after how many nodes to cut, for this number of shares of the time, about."""
    ends = np.cumsum(seconds)
    if not len(ends) or not ends[-1] > 0:
        return []
    share, cuts = ends[-1] / shares, set[int]()
    for number in range(1, shares):
        node = int(np.searchsorted(ends, number * share))
        middle = ends[node] - seconds[node] / 2
        large = seconds[node] > share
        cuts.update((node, node + 1) if large else (node + (number * share > middle),))
    return sorted(cuts - {0, len(seconds)})


def _write(content: ModelProto, indices: Set[int | None], path: Path) -> tuple[int, int]:
    """Write the graph with some of its nodes; return how many values go on, and how many it has.

    The latter are inputs and outputs.
    """
    from onnx import TensorProto, helper

    graph = content.graph
    nodes = [node for index, node in enumerate(graph.node) if index in indices]
    outputs = {name for node in nodes for name in node.output if name}
    read_later = {n for i, node in enumerate(graph.node) if i not in indices for n in node.input}
    ends = sorted(outputs & read_later)
    part = type(content)()
    part.CopyFrom(content)
    stored = {tensor.name for tensor in graph.initializer}
    del part.graph.node[:], part.graph.output[:], part.graph.initializer[:], part.graph.input[:]
    part.graph.input.extend(value for value in graph.input if value.name not in stored)
    part.graph.node.extend(nodes)
    part.graph.node.extend(
        helper.make_node("Shape", [name], [f"{name}/shape"], name=f"{name}/shape") for name in ends
    )
    part.graph.output.extend(value for value in graph.output if value.name in outputs)
    part.graph.output.extend(
        helper.make_tensor_value_info(f"{name}/shape", TensorProto.INT64, None) for name in ends
    )
    part.graph.initializer.extend(_read(graph, nodes))
    path.write_bytes(part.SerializeToString())
    return len(ends), len(part.graph.input) + len(part.graph.output)


def _read(graph: GraphProto, nodes: Sequence[Any]) -> list[Any]:
    names = {name for node in nodes for name in node.input}
    return [tensor for tensor in graph.initializer if tensor.name in names]


def _quick_calls(
    sessions: Sequence[OnnxSession], inputs: Inputs, limit: float, now: Callable[[], int]
) -> list[float]:
    """Return the seconds of a quick call of each session; they take turns."""
    times: list[list[float]] = [[] for _ in sessions]
    end = now() + round(limit * 1e9)
    for session in sessions:
        for _ in range(WARM_UP):
            session(*inputs.args, **inputs.kwargs)
    while len(times[0]) < MIN_ROUNDS * CALLS or (
        len(times[0]) < MAX_ROUNDS * CALLS and now() < end
    ):
        for session, seconds in zip(sessions, times, strict=True):
            for _ in range(CALLS):
                begin = now()
                session(*inputs.args, **inputs.kwargs)
                seconds.append((now() - begin) * 1e-9)
    return [float(np.quantile(seconds, QUICK)) for seconds in times]
