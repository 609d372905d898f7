"""The timeline probe of an ONNX file: how long its nodes take in the runtime, by layer."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.executorch.program_graph import recorded_call
from torchgauge.analyze.onnx.node_tree import TimedNode, as_run, node_rows
from torchgauge.analyze.onnx.node_work import graph_cost, graph_facts
from torchgauge.analyze.onnx.origins import counted_nodes, timed_nodes
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.timeline.node_times import NodeTimes
from torchgauge.clock import Clock, SystemClock
from torchgauge.measure.effort import USUAL, Effort
from torchgauge.measure.runner import Runner
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.timeline.profiled_nodes import Turns, model_call, profile_nodes, take_turns
from torchgauge.measure.timeline.timeline_options import TimelineOptions
from torchgauge.readers.onnxruntime_profile import RecordedNode
from torchgauge.records.onnx.graph import Graph, GraphFacts, LayerRule
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.work.cost import Cost
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.onnx_session import OnnxSession
from torchgauge.targets.runtimes.openvino_model import OpenVinoModel
from torchgauge.targets.runtimes.runtime_model import ExecuTorchProgram, RuntimeModel
from torchgauge.temporary import TemporaryFolder

EVENTS_A_NODE = 3  # of an ETDump, which is read in Python
# By how much the nodes' times without the costs may differ from the bare call.
UNEXPLAINED = 0.15
_Rows = Sequence[TimedNode]
_TakeTurns = Callable[[Callable[..., object], int], Turns]


class RuntimeTree(NamedTuple):
    """The tree of a call, the graph with the work that ran, and seconds by the layers' rules."""

    tree: Tree
    graph: Graph
    time_by_rule: dict[LayerRule, float]


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


def work_that_ran(
    placement: Placement, cost: Cost | None, in_runtime: RuntimeTree | None
) -> Cost | None:
    """Return the cost from which bounds are computed.

    Of an ONNX file as its nodes ran, fused: values between them never exist. None where that is
    not known.
    """
    if cost is None or cost.counted_on != "onnx" or not isinstance(placement.model, RuntimeModel):
        return cost
    return None if in_runtime is None else graph_cost(in_runtime.graph)


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

    def turns_with(instrumented: Callable[..., object], events: int) -> Turns:
        return take_turns(step, model_call(instrumented, placement), events, effort, now)

    if isinstance(model, OpenVinoModel):
        return _by_counters(model, graph, turns_with)
    if isinstance(model, ExecuTorchProgram):
        return _by_dump(model, graph, turns_with)
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
    nodes = list(timed_nodes(profiled.recorded, times, profiled.graph, graph))
    profiler = msgspec.structs.replace(
        _pass("ONNX Runtime's profiler", turns),
        per_node=times.per_node,
        per_tiny_node=times.calibrated,
    )
    warnings = [*_fallen_back(model, profiled.recorded.nodes, nodes), *_unexplained(times)]
    return _tree(graph, nodes, times.outside, profiler, warnings)


def _by_counters(model: OpenVinoModel, graph: Graph, turns_with: _TakeTurns) -> RuntimeTree:
    """Return the tree by OpenVINO's own counters: means of all calls in whole microseconds."""
    counting = model.counting()
    turns = turns_with(counting, len(graph.nodes))
    counters = counting.counters()
    bare = statistics.median(turns.bare)
    counted = sum(counter.seconds or 0.0 for counter in counters)
    scale = min(1.0, bare / counted) if counted else 1.0
    nodes = counted_nodes(counters, graph, scale)
    instrument = _pass("OpenVINO's counters", turns)
    return _tree(graph, nodes, max(0.0, bare - counted * scale), instrument, [])


def _by_dump(model: ExecuTorchProgram, graph: Graph, turns_with: _TakeTurns) -> RuntimeTree:
    """Return the tree by ExecuTorch's own events, which add little: times are scaled down alone."""
    recording = model.recording()
    turns = turns_with(recording, EVENTS_A_NODE * len(graph.nodes))
    folder = TemporaryFolder()
    try:
        runs = recording.runs(folder.path)[-len(turns.instrumented) :]
    finally:
        folder.remove()
    call, bare = recorded_call(runs, graph), statistics.median(turns.bare)
    counted = sum(node.seconds for node in call.nodes)
    scale = min(1.0, bare / counted) if counted else 1.0
    nodes = [dataclasses.replace(node, seconds=node.seconds * scale) for node in call.nodes]
    instrument = _pass("ExecuTorch's events", turns)
    return _tree(graph, nodes, max(0.0, bare - counted * scale), instrument, [])


def _pass(name: str, turns: Turns) -> Pass:
    return Pass(
        name=name,
        steps=len(turns.instrumented),
        duration=statistics.median(turns.instrumented),
        bare=statistics.median(turns.bare),
        bare_interval=median_interval(turns.bare),
    )


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
    return RuntimeTree(tree, as_run(graph, nodes), dict(by_rule.most_common()))


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
