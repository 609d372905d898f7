"""Record the nodes of an ONNX session, and find how long they take in a bare call.

The profiler evicts weights from the caches, so that nodes that read many take longer in a recorded
call. A value that goes on beyond a cut is read by a node that makes its shape: no output is large.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.origins import graph_indices
from torchgauge.analyze.timeline.node_times import (
    QUICK,
    GraphPart,
    NodeTimes,
    RecordingCost,
    node_times,
)
from torchgauge.errors import InputError, MeasurementError, missing_extra
from torchgauge.measure.effort import Effort
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.readers.onnxruntime_profile import RecordedCalls, read_profile
from torchgauge.records.onnx.graph import Graph
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.onnx_session import OnnxSession, RecordingSession
from torchgauge.temporary import TemporaryFolder

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


WARM_UP, MIN_CALLS, MAX_CALLS, A_ROUND = 3, 4, 400, 8
MAX_EVENTS = 60_000
# Recorded over bare call, above which the graph is also cut into parts. Below it the profile errs
# less than parts do: the first layers find their weights in a cache that the whole graph flushes.
NOTICEABLE = 1.25
OPSET, IR_VERSION = 13, 8
ROUNDS, CALLS, TINY_WARM_UP = 15, 10, 20
CHAIN = 60  # nodes
NARROW, WIDE = 2, 8  # inputs of a node
ENDS = 8  # inputs and outputs of the graph


class Turns(NamedTuple):
    """Seconds of bare and of instrumented calls that took turns."""

    bare: list[float]
    instrumented: list[float]


class _SessionFacts(NamedTuple):
    """What recording a node costs, the graph as it runs, its parts: measured once for a session."""

    cost: RecordingCost
    graph: Graph
    parts: list[GraphPart]


_sessions: weakref.WeakKeyDictionary[OnnxSession, _SessionFacts] = weakref.WeakKeyDictionary()


class ProfiledNodes(NamedTuple):
    """The nodes of a session as they ran, their times, and the graph that the runtime made."""

    recorded: RecordedCalls
    times: NodeTimes
    turns: Turns
    graph: Graph


def profile_nodes(
    model: OnnxSession,
    placement: Placement,
    step: Callable[[], object],
    effort: Effort,
    now: Callable[[], int],
) -> ProfiledNodes:
    """Record calls and bare ones in turn, and return how long the nodes take in a bare call."""
    graph = placement.target.graph
    assert graph is not None  # noqa: S101 - an ONNX file has one
    folder = TemporaryFolder()
    try:
        recording = model.recording(folder.path)
        events = sum(node.calls or 1 for node in graph.nodes)
        turns = take_turns(step, model_call(recording, placement), events, effort, now)
        recorded = _without_warm_up(read_profile(recording.end()), len(turns.instrumented))
        session = _sessions.get(model)
        if session is None:
            (tiny := folder.path / "tiny").mkdir()
            cost = recording_cost(model, tiny, now)
            session = _SessionFacts(cost, _optimised(recording.graph_file, graph), [])
            _sessions[model] = session
        values = len(graph.inputs) + len(graph.outputs)
        times = node_times(recorded, turns.bare, session.cost, values)
        prolonged = statistics.median(turns.instrumented) / statistics.median(turns.bare)
        if prolonged > NOTICEABLE and not session.parts:
            ran = RanGraph(recording.graph_file, session.graph, recorded, times.seconds)
            session.parts.extend(
                graph_parts(model, ran, session.cost, placement.inputs, effort.recording, now)
            )
        if session.parts:
            times = node_times(recorded, turns.bare, session.cost, values, session.parts)
    finally:
        folder.remove()
    return ProfiledNodes(recorded, times, turns, session.graph)


def model_call(model: Callable[..., object], placement: Placement) -> Callable[[], object]:
    """Return a call of the model on the target's inputs."""
    inputs = placement.inputs
    return lambda: model(*inputs.args, **inputs.kwargs)


def take_turns(
    step: Callable[[], object], instrumented: Callable[[], object], events: int, effort: Effort,
    now: Callable[[], int],
) -> Turns:  # fmt: skip
    """Time bare and instrumented calls in turn, in rounds of a few."""
    for _ in range(WARM_UP):
        step()
        instrumented()
    max_calls = max(MIN_CALLS, min(MAX_CALLS, MAX_EVENTS // max(1, events)))
    end = now() + round(2 * effort.recording * 1e9)
    turns = Turns([], [])
    while len(turns.bare) < MIN_CALLS or (len(turns.bare) < max_calls and now() < end):
        for call, seconds in ((step, turns.bare), (instrumented, turns.instrumented)):
            for _ in range(A_ROUND if turns.bare and turns.bare[0] < effort.recording / 40 else 1):
                begin = now()
                call()
                seconds.append((now() - begin) * 1e-9)
    return turns


def _without_warm_up(recorded: RecordedCalls, calls: int) -> RecordedCalls:
    if len(recorded.calls) < calls:
        raise MeasurementError(
            "ONNX Runtime's profile lacks calls.",
            id="profile-unreadable",
            cause=f"It has {len(recorded.calls)}, and {calls} were recorded.",
            remedy="--detail summary measures without it.",
        )
    return RecordedCalls(recorded.nodes, recorded.calls[len(recorded.calls) - calls :])


def _optimised(path: Path, original: Graph) -> Graph:
    """Return the graph as it ran, with the layers that its own names tell."""
    shapes = {
        name: sizes
        for name in original.inputs
        if (kind := original.values.get(name)) is not None and (sizes := kind.sizes) is not None
    }
    return with_layers(read_graph(path, shapes), original)


class _Tiny(NamedTuple):
    """A graph of `chains` chains of tiny nodes, and seconds of bare and recorded calls by round."""

    nodes: int
    inputs: int
    chains: int
    bare: list[list[float]]
    recorded: list[list[float]]

    @property
    def call(self) -> float:
        """Seconds of a quick bare call, as those of the model are compared with it."""
        return float(np.quantile(self.bare, QUICK))

    @property
    def added(self) -> float:
        """Seconds that recording adds to it."""
        by_round = np.median(self.recorded, axis=1) - np.median(self.bare, axis=1)
        return float(np.median(by_round))


def recording_cost(model: OnnxSession, folder: Path, now: Callable[[], int]) -> RecordingCost:
    """Return what recording adds, under the settings of a session, by its own sessions in `folder`.

    Bare and recorded calls of graphs of tiny nodes take turns: of a few and of many nodes, with few
    and with many inputs, of one and of several inputs and outputs. Raises MissingExtraError.
    """
    graphs = [
        _Tiny(nodes, inputs, chains, [], [])
        for nodes, inputs, chains in (
            (1, NARROW, 1), (CHAIN, NARROW, 1), (CHAIN, WIDE, 1), (ENDS, NARROW, ENDS)
        )
    ]  # fmt: skip
    calls = [
        _costs_by_session(graph, model, folder / str(index)) for index, graph in enumerate(graphs)
    ]
    for _ in range(ROUNDS):
        for graph, (session, recording, inputs) in zip(graphs, calls, strict=True):
            graph.bare.append(_times(session, inputs, now))
            graph.recorded.append(_times(recording, inputs, now))
    for _, recording, _ in calls:
        recording.end()
    return _cost(*graphs)


def _costs_by_session(
    graph: _Tiny, model: OnnxSession, folder: Path
) -> tuple[OnnxSession, RecordingSession, list[torch.Tensor]]:
    folder.mkdir()
    path = folder / "tiny.onnx"
    path.write_bytes(_graph(graph.nodes // graph.chains, graph.inputs, graph.chains))
    settings = {**model.settings, "graph_optimization_level": "ORT_DISABLE_ALL"}
    session = OnnxSession(path, model.options, settings)
    recording = session.recording(folder)
    inputs = [torch.zeros(1, 8) for _ in range(graph.chains)]
    for _ in range(TINY_WARM_UP):
        session(*inputs)
        recording(*inputs)
    return session, recording, inputs


def _cost(single: _Tiny, narrow: _Tiny, wide: _Tiny, ends: _Tiny) -> RecordingCost:
    per_node = max(0.0, (narrow.added - single.added) / (narrow.nodes - single.nodes))
    per_tensor = (wide.added - narrow.added) / narrow.nodes / (wide.inputs - narrow.inputs)
    per_tensor = min(max(0.0, per_tensor), per_node / (narrow.inputs + 1))
    bare_node = max(0.0, (narrow.call - single.call) / (narrow.nodes - single.nodes))
    call = max(0.0, single.call - bare_node)
    value = max(0.0, ends.call - ends.nodes * bare_node - call) / (2 * (ends.chains - 1))
    return RecordingCost(
        node=per_node - per_tensor * (narrow.inputs + 1),
        tensor=per_tensor,
        call=max(0.0, call - 2 * value),
        value=value,
        tiny=bare_node,
    )


def _times(
    call: Callable[..., object], inputs: list[torch.Tensor], now: Callable[[], int]
) -> list[float]:
    times = []
    for _ in range(CALLS):
        begin = now()
        call(*inputs)
        times.append((now() - begin) * 1e-9)
    return times


def _graph(length: int, inputs: int, chains: int) -> bytes:
    """Return a model of chains of sums of tiny tensors, each with its own input and output."""
    try:
        from onnx import TensorProto, helper
    except ImportError as error:
        raise missing_extra("onnx", "onnx", "Node times of an ONNX file") from error
    nodes, ends = [], []
    for chain in range(chains):
        first = value = f"x{chain}"
        for number in range(length):
            output = f"y{chain}_{number}"
            nodes.append(helper.make_node("Sum", [value, *[first] * (inputs - 1)], [output]))
            value = output
        ends.append((first, value))
    first_names, last_names = zip(*ends, strict=True)
    inputs_info, outputs_info = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in names]
        for names in (first_names, last_names)
    )
    opsets = [helper.make_opsetid("", OPSET)]
    graph = helper.make_graph(nodes, "tiny", inputs_info, outputs_info)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(model.SerializeToString())


CPU = "CPUExecutionProvider"
# Cuts are at equal shares of the time, of fewer in a large or slow graph, and around each node that
# takes more than a share.
SHARES = (12, 6, 3)
TIMED_CALLS, TIMED_WARM_UP, MIN_ROUNDS, MAX_ROUNDS = 8, 3, 5, 40
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
    seconds = MIN_ROUNDS * TIMED_CALLS * float(ran.seconds.sum())
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
        for _ in range(TIMED_WARM_UP):
            session(*inputs.args, **inputs.kwargs)
    while len(times[0]) < MIN_ROUNDS * TIMED_CALLS or (
        len(times[0]) < MAX_ROUNDS * TIMED_CALLS and now() < end
    ):
        for session, seconds in zip(sessions, times, strict=True):
            for _ in range(TIMED_CALLS):
                begin = now()
                session(*inputs.args, **inputs.kwargs)
                seconds.append((now() - begin) * 1e-9)
    return [float(np.quantile(seconds, QUICK)) for seconds in times]
