"""The nodes that a runtime ran, with their origins and layers in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torchgauge.analyze.onnx.node_tree import TimedNode, main_origin
from torchgauge.analyze.onnx.origins import origins
from torchgauge.analyze.timeline.node_times import NodeTimes
from torchgauge.readers.onnxruntime_profile import RecordedCalls, RecordedNode
from torchgauge.records.onnx.graph import Graph, GraphNode, LayerRule


class NodeCounter(NamedTuple):
    """What OpenVINO's counters say of a node in one call; `seconds` None where it did not run.

    `origins` are the names of the file's nodes that it stands for.
    """

    name: str
    operator: str
    kernel: str
    seconds: float | None
    origins: tuple[str, ...]


def timed_nodes(
    recorded: RecordedCalls, times: NodeTimes, optimised: Graph, original: Graph
) -> list[TimedNode]:
    """Return the recorded nodes with their origins and layers."""
    origins_of = origins(optimised, original)
    kernels: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for number, name, durations in times.kernels:
        kernels.setdefault(number, []).append((name, durations))
    nodes = []
    for number, index in enumerate(graph_indices(recorded.nodes, optimised)):
        node = recorded.nodes[number]
        ran = optimised.nodes[index] if index is not None else None
        of_node = origins_of[index] if index is not None else ()
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


def graph_indices(nodes: Sequence[RecordedNode], optimised: Graph) -> list[int | None]:
    """Return the index of each recorded node in the graph that ran."""
    finder = _NodeIndices(optimised.nodes)
    return [finder.index_of(node) for node in nodes]


class _NodeIndices:
    """Finds recorded nodes in the graph that ran: by name and operator, then in their order."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        self._by_name: dict[tuple[str, str], list[int]] = {}
        for index, node in enumerate(nodes):
            self._by_name.setdefault((node.name, node.operator), []).append(index)

    def index_of(self, node: RecordedNode) -> int | None:
        """Return the node's index; one without a name goes by its operator and number."""
        unnamed = node.name == f"{node.operator}_{node.index}"
        for name in (node.name, *([""] if unnamed else [])):
            indices = self._by_name.get((name, node.operator))
            if indices:
                return indices.pop(0) if len(indices) > 1 else indices[0]
        return None


def counted_nodes(counters: Sequence[NodeCounter], graph: Graph, scale: float) -> list[TimedNode]:
    """Return the nodes that OpenVINO ran; one that it added is in the layer of the next one.

    Of several that name a node of the file, that which takes longest has its work.
    """
    numbers: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in (node.name, *node.outputs):
            numbers.setdefault(name, index)
    ran = [counter for counter in counters if counter.seconds is not None]
    claims = [sorted({n for name in c.origins for n in _named(name, numbers)}) for c in ran]
    claimant: dict[int, int] = {}
    for number in sorted(range(len(ran)), key=lambda number: -(ran[number].seconds or 0)):
        for index in claims[number]:
            claimant.setdefault(index, number)
    nodes: list[TimedNode] = []
    layer: str | None = None
    rule: LayerRule = "none"
    for number, counter in reversed(list(enumerate(ran))):
        of_node = claims[number]
        if of_node:
            holder = main_origin(of_node, graph)
            layer, rule = holder.layer, holder.rule
        elif layer is not None:
            rule = "neighbours"
        nodes.append(
            TimedNode(
                operator=f"openvino::{counter.operator} ({counter.kernel})",
                seconds=(counter.seconds or 0.0) * scale,
                origins=tuple(n for n in of_node if claimant[n] == number),
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
