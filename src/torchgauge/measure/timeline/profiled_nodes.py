"""Record the nodes of an ONNX session, and find how long they take in a bare call."""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.timeline.node_times import GraphPart, NodeTimes, RecordingCost, node_times
from torchgauge.errors import MeasurementError
from torchgauge.measure.effort import Effort
from torchgauge.measure.timeline.graph_parts import RanGraph, graph_parts
from torchgauge.measure.timeline.recording_cost import recording_cost
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.readers.onnxruntime_profile import RecordedCalls, read_profile
from torchgauge.records.onnx.graph import Graph
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.temporary import TemporaryFolder

WARM_UP, MIN_CALLS, MAX_CALLS, A_ROUND = 3, 4, 400, 8
MAX_EVENTS = 60_000
# Recorded over bare call, above which the graph is also cut into parts. Below it the profile errs
# less than parts do: the first layers find their weights in a cache that the whole graph flushes.
NOTICEABLE = 1.25


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
