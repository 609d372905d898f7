"""The instructions of an ExecuTorch program with the times that an ETDump has of them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from torchgauge.analyze.onnx.node_tree import TimedNode
from torchgauge.readers.executorch.flatbuffer import DumpEvent, DumpRun
from torchgauge.readers.executorch.program_file import DELEGATED
from torchgauge.records.onnx.graph import Graph, GraphNode


class RecordedCall(NamedTuple):
    """Seconds of a recorded call, and of its instructions, before any scaling."""

    seconds: float
    nodes: tuple[TimedNode, ...]


def recorded_call(runs: Sequence[DumpRun], graph: Graph) -> RecordedCall:
    """Return the typical call of runs: medians by instruction, of a backend's parts their means.

    Backends' clocks may be coarse, so that the median of a part is nothing.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    calls: defaultdict[int, list[int]] = defaultdict(list)
    parts: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for number, events in _by_instruction(run.calls, len(graph.nodes)).items():
            times[number].append(sum(_seconds(event) for event in events))
            calls[number].append(len(events))
        for event in run.parts:
            parts[event.instruction][event.part].append(_seconds(event))
    nodes: list[TimedNode] = []
    for number in sorted(times):
        node, seconds = graph.nodes[number], statistics.median(times[number])
        inner = parts[number] if node.operator == DELEGATED else {}
        means = {part: sum(spans) / len(runs) for part, spans in inner.items()}
        total = sum(means.values())
        scale = min(1.0, seconds / total) if total else 1.0
        own, count = max(0.0, seconds - scale * total), round(statistics.median(calls[number]))
        nodes.append(_timed(node, number, node.full_operator, own, count))
        nodes += [
            _timed(node, None, f"{node.domain}::{part}", mean * scale,
                   max(1, round(len(inner[part]) / len(runs))))
            for part, mean in means.items()
        ]  # fmt: skip
    typical = statistics.median(
        _seconds(run.execution) for run in runs if run.execution is not None
    )
    return RecordedCall(typical, tuple(nodes))


def _by_instruction(events: Sequence[DumpEvent], count: int) -> dict[int, list[DumpEvent]]:
    by_number: dict[int, list[DumpEvent]] = {}
    for event in events:
        if 0 <= event.instruction < count:
            by_number.setdefault(event.instruction, []).append(event)
    return by_number


def _timed(
    node: GraphNode, number: int | None, operator: str, seconds: float, calls: int
) -> TimedNode:
    """Return an instruction, or with `number` None a part of it, whose work is unknown."""
    types = node.input_types or node.output_types
    return TimedNode(
        operator=operator,
        seconds=seconds,
        calls=calls,
        origins=() if number is None else (number,),
        is_part=number is None,
        layer=node.layer,
        rule=node.rule,
        shapes=""
        if number is None
        else ", ".join("x".join(map(str, kind.sizes)) for kind in types if kind.sizes),
        dtype=types[0].dtype if types else "",
    )


def _seconds(event: DumpEvent) -> float:
    return (event.end - event.begin) * 1e-9
