"""The timeline probe of an ONNX file: how long its nodes take in the runtime, by layer."""

from __future__ import annotations

import dataclasses
import statistics
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.analyze.onnx.layers import with_layers
from torchgauge.analyze.onnx.node_tree import TimedNode, main_origin, node_rows
from torchgauge.analyze.onnx.origins import origins
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.timeline.node_times import NodeTimes, RecordingCost, node_times
from torchgauge.clock import Clock, SystemClock
from torchgauge.errors import MeasurementError
from torchgauge.measure.effort import USUAL, Effort
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.timeline.recording_cost import recording_cost
from torchgauge.readers.onnx.onnx_file import read_graph
from torchgauge.readers.onnxruntime_profile import RecordedCalls, RecordedNode, read_profile
from torchgauge.records.onnx.graph import Graph, GraphNode, LayerRule
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.targets.runtimes.openvino_model import NodeCounter, OpenVinoModel
from torchgauge.temporary import TemporaryFolder

WARM_UP, FEWEST, MOST, A_ROUND = 3, 4, 400, 8
MOST_EVENTS = 60_000
# What the profile says of the nodes, without its costs, may differ by so much from the bare call.
UNEXPLAINED = 0.15
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
    """What recording a node costs, and the graph as it runs: looked at once for a session."""

    cost: RecordingCost
    graph: Graph


_sessions: weakref.WeakKeyDictionary[OnnxSession, _SessionFacts] = weakref.WeakKeyDictionary()


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
    assert isinstance(model, OnnxSession)  # noqa: S101 - there are two runtimes
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
    folder = TemporaryFolder()
    try:
        recording = model.recording(folder.path)
        turns = _turns(step, _call(recording, placement), len(graph.nodes), effort, now)
        recorded = _without_warm_up(read_profile(recording.end()), len(turns.instrumented))
        session = _sessions.get(model)
        if session is None:
            (tiny := folder.path / "tiny").mkdir()
            cost = recording_cost(model, tiny, now)
            session = _SessionFacts(cost, _optimised(recording.graph_file, graph))
            _sessions[model] = session
    finally:
        folder.remove()
    values = len(graph.inputs) + len(graph.outputs)
    times = node_times(recorded, turns.bare, session.cost, values)
    nodes = _timed(recorded, times, session.graph, graph)
    profiler = Pass(
        name="ONNX Runtime's profiler",
        steps=len(turns.instrumented),
        duration=statistics.median(turns.instrumented),
        per_node=times.per_node,
        per_tiny_node=times.calibrated,
        **_bare(turns),
    )
    warnings = [*_fallen_back(model, recorded.nodes, nodes), *_unexplained(times)]
    return _tree(graph, nodes, times.outside, profiler, warnings)


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
    nodes = _by_origins(counters, graph, scale)
    counting_pass = Pass(
        name="OpenVINO's counters",
        steps=len(turns.instrumented),
        duration=statistics.median(turns.instrumented),
        **_bare(turns),
    )
    return _tree(graph, nodes, max(0.0, bare - counted * scale), counting_pass, [])


def _call(model: Callable[..., object], placement: Placement) -> Callable[[], object]:
    inputs = placement.inputs
    return lambda: model(*inputs.args, **inputs.kwargs)


def _turns(
    step: Step, instrumented: Callable[[], object], nodes: int, effort: Effort,
    now: Callable[[], int],
) -> _Turns:  # fmt: skip
    """Time bare and instrumented calls in turn, in rounds of a few."""
    for _ in range(WARM_UP):
        step()
        instrumented()
    most = max(FEWEST, min(MOST, MOST_EVENTS // max(1, nodes)))
    end = now() + round(2 * effort.recording * 1e9)
    turns = _Turns([], [])
    while len(turns.bare) < FEWEST or (len(turns.bare) < most and now() < end):
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


def _timed(
    recorded: RecordedCalls, times: NodeTimes, optimised: Graph, original: Graph
) -> list[TimedNode]:
    """Return the recorded nodes with their origins and layers."""
    origins_of = origins(optimised, original)
    places = _Places(optimised.nodes)
    kernels: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for number, name, durations in times.kernels:
        kernels.setdefault(number, []).append((name, durations))
    nodes = []
    for number, node in enumerate(recorded.nodes):
        place = places.of(node)
        ran = optimised.nodes[place] if place is not None else None
        of_node = origins_of[place] if place is not None else ()
        holder = main_origin(of_node, original) if of_node else ran
        nodes.append(
            TimedNode(
                operator=ran.full_operator if ran is not None else f"onnx::{node.operator}",
                seconds=float(times.seconds[number]),
                calls=int(times.calls[number]),
                origins=of_node,
                layer=None if holder is None else holder.layer,
                rule="none" if holder is None else holder.rule,
                shapes=node.shapes,
                dtype=node.dtype,
                kernels=tuple(kernels.get(number, ())),
                recorded_calls=times.recorded_calls,
            )
        )
    return nodes


class _Places:
    """Finds recorded nodes in the graph that ran: by name and operator, then in their order."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        self._by_name: dict[tuple[str, str], list[int]] = {}
        for index, node in enumerate(nodes):
            self._by_name.setdefault((node.name, node.operator), []).append(index)

    def of(self, node: RecordedNode) -> int | None:
        """Return the node's index; one without a name goes by its operator and number."""
        unnamed = node.name == f"{node.operator}_{node.index}"
        for name in (node.name, *([""] if unnamed else [])):
            indices = self._by_name.get((name, node.operator))
            if indices:
                return indices.pop(0) if len(indices) > 1 else indices[0]
        return None


def _by_origins(counters: Sequence[NodeCounter], graph: Graph, scale: float) -> list[TimedNode]:
    """Return the nodes that OpenVINO ran; one that it added is in the layer of the next one."""
    numbers: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in (node.name, *node.outputs):
            numbers.setdefault(name, index)
    nodes: list[TimedNode] = []
    layer: str | None = None
    rule: LayerRule = "none"
    for counter in reversed(counters):
        if counter.seconds is None:
            continue
        of_node = sorted({n for name in counter.origins for n in _named(name, numbers)})
        if of_node:
            holder = main_origin(of_node, graph)
            layer, rule = holder.layer, holder.rule
        elif layer is not None:
            rule = "neighbours"
        nodes.append(
            TimedNode(
                operator=f"openvino::{counter.operator} ({counter.kernel})",
                seconds=counter.seconds * scale,
                origins=tuple(of_node),
                layer=layer,
                rule=rule,
            )
        )
    return nodes[::-1]


def _named(name: str, numbers: dict[str, int]) -> list[int]:
    """Return the node of this name, or of what comes before what OpenVINO adds to it."""
    while name:
        if name in numbers:
            return [numbers[name]]
        name = name.rpartition("/")[0]
    return []


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
    others = [
        (node.provider, timed.seconds)
        for node, timed in zip(recorded, nodes, strict=True)
        if node.provider and node.provider != model.provider
    ]
    if not others:
        return []
    total = sum(node.seconds for node in nodes)
    share = sum(seconds for _, seconds in others) / total if total else 0.0
    names = ", ".join(sorted({provider for provider, _ in others}))
    return [
        MeasurementWarning(
            id="nodes-fell-back",
            message=f"{len(others)} of {len(nodes)} nodes, {units.percent(share)} of the time in "
            f"nodes, ran on {names}, not on {model.provider}.",
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
