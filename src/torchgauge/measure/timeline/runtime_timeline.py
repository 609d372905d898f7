"""The timeline probe of an ONNX file: how long its nodes take in the runtime, by layer."""

from __future__ import annotations

import dataclasses
import statistics
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.executorch.dump_nodes import recorded_call
from torchgauge.analyze.onnx.graph_cost import graph_facts
from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.node_tree import TimedNode, node_rows
from torchgauge.analyze.onnx.ran_nodes import counted_nodes, timed_nodes
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.timeline.node_times import (
    GraphPart,
    NodeTimes,
    RecordingCost,
    node_times,
)
from torchgauge.clock import Clock, SystemClock
from torchgauge.errors import MeasurementError
from torchgauge.measure.effort import USUAL, Effort
from torchgauge.measure.runner import Runner
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.timeline.graph_parts import RanGraph, graph_parts
from torchgauge.measure.timeline.recording_cost import recording_cost
from torchgauge.measure.timeline.timeline_options import TimelineOptions
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.readers.onnxruntime_profile import RecordedCalls, RecordedNode, read_profile
from torchgauge.records.onnx.graph import Graph, GraphFacts, LayerRule
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.executorch_program import ExecuTorchProgram
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.targets.runtimes.openvino_model import OpenVinoModel
from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.temporary import TemporaryFolder

WARM_UP, MIN_CALLS, MAX_CALLS, A_ROUND = 3, 4, 400, 8
MAX_EVENTS = 60_000
EVENTS_A_NODE = 3  # of an ETDump, which is read in Python
# By how much the nodes' times without the costs may differ from the bare call.
UNEXPLAINED = 0.15
# Recorded over bare call, above which the graph is also cut into parts. Below it the profile errs
# less than parts do: the first layers find their weights in a cache that the whole graph flushes.
NOTICEABLE = 1.25
_Rows = Sequence[TimedNode]


class RuntimeTree(NamedTuple):
    """The tree of a call, and the seconds in nodes by the rule that found their layer."""

    tree: Tree
    time_by_rule: dict[LayerRule, float]


class _Turns(NamedTuple):
    """Seconds of bare and of instrumented calls that took turns."""

    bare: list[float]
    instrumented: list[float]


class _SessionFacts(NamedTuple):
    """What recording a node costs, the graph as it runs, its parts: measured once for a session."""

    cost: RecordingCost
    graph: Graph
    parts: list[GraphPart]


_sessions: weakref.WeakKeyDictionary[OnnxSession, _SessionFacts] = weakref.WeakKeyDictionary()


def attempt(placement: Placement, runner: Runner, timeline: TimelineOptions) -> RuntimeTree | None:
    """Return the tree of an ONNX file; None for other targets, and where it fails."""
    if not isinstance(placement.model, RuntimeModel) or timeline.detail == "summary":
        return None
    if timeline.trace is not None or timeline.lines or timeline.nvtx:
        runner.warnings.append(
            MeasurementWarning(
                id="options-of-torch",
                message="--trace, --lines and --nvtx record torch, and nothing of another runtime.",
                probe="timeline",
            )
        )
    return runner.attempt("timeline", lambda: measure(placement, effort=timeline.effort))


def facts(placement: Placement, in_runtime: RuntimeTree | None) -> GraphFacts | None:
    """Return the facts of an ONNX file's graph, with the time that each rule placed."""
    if placement.target.graph is None:
        return None
    by_rule = {} if in_runtime is None else in_runtime.time_by_rule
    return msgspec.structs.replace(graph_facts(placement.target.graph), time_by_rule=by_rule)


def measure(
    placement: Placement, *, effort: Effort = USUAL, clock: Clock | None = None
) -> RuntimeTree:
    """Return the tree of one call: layers, nodes, kernels and what is in no node.

    Raises what the call raises, MissingExtraError, MeasurementError `profile-unreadable`.
    """
    with prepared(placement) as step:
        step()
        return _measured(placement, step, effort, (clock or SystemClock()).now)


def _measured(
    placement: Placement, step: Step, effort: Effort, now: Callable[[], int]
) -> RuntimeTree:
    model, graph = placement.model, placement.target.graph
    assert graph is not None  # noqa: S101 - an ONNX file has one
    if isinstance(model, OpenVinoModel):
        return _by_counters(model, placement, step, graph, effort, now)
    if isinstance(model, ExecuTorchProgram):
        return _by_dump(model, placement, step, graph, effort, now)
    assert isinstance(model, OnnxSession)  # noqa: S101 - there are three runtimes
    return _by_profile(model, placement, step, graph, effort, now)


def own_times(
    placement: Placement, step: Step, seconds: float, now: Callable[[], int]
) -> dict[str, float]:
    """Return each layer's own seconds of a call by its path, recorded for about `seconds`."""
    effort = dataclasses.replace(USUAL, recording=seconds)
    tree = _measured(placement, step, effort, now).tree
    times = {row.path: 0.0 for row in tree.rows if row.kind in ("model", "layer")}
    layers: list[str] = []
    for row in tree.rows:
        layers.append(row.path if row.kind in ("model", "layer") else layers[row.parent])
        if row.kind != "bucket":
            times[layers[-1]] += (row.host or 0) * 1e-9
    return times


def _by_profile(
    model: OnnxSession,
    placement: Placement,
    step: Step,
    graph: Graph,
    effort: Effort,
    now: Callable[[], int],
) -> RuntimeTree:
    profiled = profile_nodes(model, placement, step, effort, now)
    times, turns = profiled.times, profiled.turns
    nodes = timed_nodes(profiled.recorded, times, profiled.graph, graph)
    profiler = Pass(
        name="ONNX Runtime's profiler",
        steps=len(turns.instrumented),
        duration=statistics.median(turns.instrumented),
        per_node=times.per_node,
        per_tiny_node=times.calibrated,
        **_bare(turns),
    )
    warnings = [*_fallen_back(model, profiled.recorded.nodes, nodes), *_unexplained(times)]
    return _tree(graph, nodes, times.outside, profiler, warnings)


class ProfiledNodes(NamedTuple):
    """The nodes of a session as they ran, their times, and the graph that the runtime made."""

    recorded: RecordedCalls
    times: NodeTimes
    turns: _Turns
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
        turns = _turns(step, _call(recording, placement), events, effort, now)
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


def _by_counters(
    model: OpenVinoModel,
    placement: Placement,
    step: Step,
    graph: Graph,
    effort: Effort,
    now: Callable[[], int],
) -> RuntimeTree:
    """Return the tree by OpenVINO's own counters: means of all calls in whole microseconds."""
    counting = model.counting()
    turns = _turns(step, _call(counting, placement), len(graph.nodes), effort, now)
    counters = counting.counters()
    bare = statistics.median(turns.bare)
    counted = sum(counter.seconds or 0.0 for counter in counters)
    scale = min(1.0, bare / counted) if counted else 1.0
    nodes = counted_nodes(counters, graph, scale)
    counting_pass = Pass(
        name="OpenVINO's counters",
        steps=len(turns.instrumented),
        duration=statistics.median(turns.instrumented),
        **_bare(turns),
    )
    return _tree(graph, nodes, max(0.0, bare - counted * scale), counting_pass, [])


def _by_dump(
    model: ExecuTorchProgram,
    placement: Placement,
    step: Step,
    graph: Graph,
    effort: Effort,
    now: Callable[[], int],
) -> RuntimeTree:
    """Return the tree by ExecuTorch's own events, which add little: times are scaled down alone."""
    recording = model.recording()
    turns = _turns(step, _call(recording, placement), EVENTS_A_NODE * len(graph.nodes), effort, now)
    folder = TemporaryFolder()
    try:
        runs = recording.runs(folder.path)[-len(turns.instrumented) :]
    finally:
        folder.remove()
    call, bare = recorded_call(runs, graph), statistics.median(turns.bare)
    counted = sum(node.seconds for node in call.nodes)
    scale = min(1.0, bare / counted) if counted else 1.0
    nodes = [dataclasses.replace(node, seconds=node.seconds * scale) for node in call.nodes]
    events = Pass(
        name="ExecuTorch's events",
        steps=len(turns.instrumented),
        duration=statistics.median(turns.instrumented),
        **_bare(turns),
    )
    return _tree(graph, nodes, max(0.0, bare - counted * scale), events, [])


def _call(model: Callable[..., object], placement: Placement) -> Callable[[], object]:
    inputs = placement.inputs
    return lambda: model(*inputs.args, **inputs.kwargs)


def _turns(
    step: Callable[[], object], instrumented: Callable[[], object], events: int, effort: Effort,
    now: Callable[[], int],
) -> _Turns:  # fmt: skip
    """Time bare and instrumented calls in turn, in rounds of a few."""
    for _ in range(WARM_UP):
        step()
        instrumented()
    max_calls = max(MIN_CALLS, min(MAX_CALLS, MAX_EVENTS // max(1, events)))
    end = now() + round(2 * effort.recording * 1e9)
    turns = _Turns([], [])
    while len(turns.bare) < MIN_CALLS or (len(turns.bare) < max_calls and now() < end):
        for call, seconds in ((step, turns.bare), (instrumented, turns.instrumented)):
            for _ in range(A_ROUND if turns.bare and turns.bare[0] < effort.recording / 40 else 1):
                begin = now()
                call()
                seconds.append((now() - begin) * 1e-9)
    return turns


def _bare(turns: _Turns) -> dict[str, Any]:
    return {
        "bare": statistics.median(turns.bare),
        "bare_interval": median_interval(turns.bare),
    }


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


def _tree(
    graph: Graph,
    nodes: _Rows,
    outside: float,
    instrument: Pass,
    warnings: Sequence[MeasurementWarning],
) -> RuntimeTree:
    rows = node_rows(graph, nodes, outside)
    total = sum(row.host or 0 for row in rows) * 1e-9
    by_rule: Counter[LayerRule] = Counter()
    for node in nodes:
        by_rule[node.rule] += node.seconds  # type: ignore[assignment]
    tree = Tree(
        rows=rows,
        passes=(instrument,),
        residual=total - (instrument.bare or total),
        warnings=tuple(warnings),
    )
    return RuntimeTree(tree, dict(by_rule.most_common()))


def _fallen_back(
    model: OnnxSession, recorded: Sequence[RecordedNode], nodes: _Rows
) -> list[MeasurementWarning]:
    """Return the warning that nodes ran on another provider than the requested one."""
    fallen_back = [
        (node.provider, timed.seconds)
        for node, timed in zip(recorded, nodes, strict=True)
        if node.provider and node.provider != model.provider
    ]
    if not fallen_back:
        return []
    total = sum(node.seconds for node in nodes)
    share = sum(seconds for _, seconds in fallen_back) / total if total else 0.0
    names = ", ".join(sorted({provider for provider, _ in fallen_back}))
    return [
        MeasurementWarning(
            id="nodes-fell-back",
            message=f"{len(fallen_back)} of {len(nodes)} nodes, "
            f"{units.percent(share)} of the time, ran on {names}, not on {model.provider}.",
            probe="timeline",
            cause="The provider has no kernel for these nodes, or for their types.",
            remedy="Where they are many, measure --provider cpu beside it: every change of "
            "provider copies values.",
        )
    ]


def _unexplained(times: NodeTimes) -> list[MeasurementWarning]:
    if not times.scale or abs(times.scale - 1) <= UNEXPLAINED:
        return []
    return [
        MeasurementWarning(
            id="profile-unexplained",
            message=f"The nodes' times were scaled by {times.scale:.2f} to those of a bare call: "
            "what recording costs in graphs of tiny nodes does not explain the difference.",
            probe="timeline",
            cause="Other load on the machine, or nodes of which several run at a time.",
            remedy="Repeat on a quiet machine; until then shares of layers are rough.",
        )
    ]
