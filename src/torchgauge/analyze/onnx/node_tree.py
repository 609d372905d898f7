"""The tree of an ONNX file's call: its layers, in each the nodes that ran, and their kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from torchgauge.analyze.onnx.node_work import NO_LAYER, moved_bytes
from torchgauge.formulas.onnx_kinds import MOVING
from torchgauge.records.onnx.graph import Graph, GraphNode, LayerRule
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.trace.breakdown import Kernel

OUTSIDE_NODES = "outside the nodes"
MOST_NAMED = 4  # operators of a node that was made of several
_TYPES = {"onnx": "ONNX", "executorch": "ExecuTorch"}


@dataclasses.dataclass(frozen=True)
class TimedNode:
    """A node as it ran: seconds of a call, and where in the file it comes from.

    `origins` are indices into the file's nodes, empty where the runtime added it, and of a part of
    a node (`is_part`), whose work is unknown. `layer` None: no rule finds one. `kernels` are (name,
    ns of each call) of device work in `recorded_calls` calls.
    """

    operator: str
    seconds: float
    calls: int = 1
    origins: tuple[int, ...] = ()
    is_part: bool = False
    layer: str | None = None
    rule: LayerRule = "none"
    shapes: str = ""
    dtype: str = ""
    kernels: tuple[tuple[str, tuple[int, ...]], ...] = ()
    recorded_calls: int = 1


def main_origin(origins: Sequence[int], graph: Graph) -> GraphNode:
    """Return the origin that gives a node its layer: that with most work, the first of equals."""
    nodes = [graph.nodes[index] for index in origins]
    return max(nodes, key=lambda node: (node.matmul_flops or 0, node.flops or 0))


def fused_name(operator: str, origins: Sequence[int], graph: Graph) -> str:
    """Return an operator's name, with those of the nodes that it stands for where it is several."""
    if len(origins) < 2:
        return operator
    names = [graph.nodes[index].operator for index in origins]
    text = " + ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        text += f" + … ({len(names)} nodes)"
    return f"{operator} = {text}"


def node_rows(graph: Graph, nodes: Sequence[TimedNode], outside: float) -> tuple[TreeRow, ...]:
    """Return the rows of model, layers, nodes, kernels and of what is in no node, `outside`.

    Nodes that are alike in a layer (operator, shapes) are one row. The work of the file's nodes is
    on the node that they became, without the values between them; of others, which were folded, the
    FLOPs are the model's own. That of nodes that the runtime added is unknown.
    """
    rows = _Rows(graph, moved_bytes(graph, (node.origins for node in nodes)))
    for node in nodes:
        rows.add(node)
    return rows.done(outside)


class _Rows:
    def __init__(self, graph: Graph, moved: Mapping[int, int | None]) -> None:
        self.graph, self.moved = graph, moved
        self.types = {node.layer: node.layer_type for node in graph.nodes if node.layer_type}
        has_layers = any(node.layer for node in graph.nodes)
        self.without = NO_LAYER if has_layers else ""
        self.children: dict[str, list[str]] = {"": []}
        self.nodes: dict[str, dict[tuple[str, str], list[TimedNode]]] = {"": {}}
        self.folded = set(range(len(graph.nodes)))

    def add(self, node: TimedNode) -> None:
        path = self.without if node.layer is None else node.layer
        self._layer(path)
        key = fused_name(node.operator, node.origins, self.graph), node.shapes
        self.nodes[path].setdefault(key, []).append(node)
        self.folded.difference_update(node.origins)

    def _layer(self, path: str) -> None:
        if path not in self.children:
            self.children[path], self.nodes[path] = [], {}
            parent = path.rpartition(".")[0]
            self._layer(parent)
            self.children[parent].append(path)

    def done(self, outside: float) -> tuple[TreeRow, ...]:
        rows: list[TreeRow] = []
        pending = [("", -1)]
        while pending:
            path, parent = pending.pop()
            number = len(rows)
            rows.append(self._layer_row(path, parent))
            for (name, shapes), group in self.nodes[path].items():
                rows.append(self._node_row(name, shapes, number, group))
                rows += _kernel_rows(group, len(rows) - 1)
            pending += [(child, number) for child in reversed(self.children[path])]
        rows.append(
            TreeRow(name=OUTSIDE_NODES, kind="bucket", parent=0, calls=0, host=round(outside * 1e9))
        )
        return tuple(rows)

    def _layer_row(self, path: str, parent: int) -> TreeRow:
        work = self._work(self.folded) if parent < 0 else (0, 0, 0)
        above = path.rpartition(".")[0]
        return TreeRow(
            name=path.removeprefix(f"{above}.") if path else self.graph.name,
            kind="layer" if path else "model",
            parent=parent,
            calls=1,
            path=path,
            type=self.types.get(path, "" if path else _TYPES[self.graph.format]),
            host=0,
            flops=work[0],
            bytes=work[1],
            unknown=work[2],
        )

    def _node_row(self, name: str, shapes: str, parent: int, group: Sequence[TimedNode]) -> TreeRow:
        flops, moved, unknown = self._work(index for node in group for index in node.origins)
        added = [node for node in group if not node.origins]
        # A copy of the runtime's does no arithmetic.
        unknown += sum(node.calls for node in added if node.is_part or node.operator not in MOVING)
        dtypes = {node.dtype for node in group}
        return TreeRow(
            name=name,
            kind="operator",
            parent=parent,
            phase="forward",
            calls=sum(node.calls for node in group),
            shapes=shapes,
            dtype=dtypes.pop() if len(dtypes) == 1 else "",
            host=round(sum(node.seconds for node in group) * 1e9),
            flops=flops if flops or not unknown else None,
            bytes=moved if moved or not (unknown or added) else None,
            unknown=unknown,
        )

    def _work(self, indices: Iterable[int]) -> tuple[int, int, int]:
        nodes = {index: self.graph.nodes[index] for index in indices}
        return (
            sum(_flops(node) for node in nodes.values()),
            sum(self.moved.get(index) or 0 for index in nodes),
            sum(node.calls or 1 for node in nodes.values() if node.flops is None),
        )


def as_run(graph: Graph, nodes: Sequence[TimedNode]) -> Graph:
    """Return the graph with the bytes that its nodes move as they ran; of folded ones no work."""
    moved = moved_bytes(graph, (node.origins for node in nodes))
    free = dict.fromkeys(
        ("matmul_flops", "causal_matmul_flops", "vector_flops", "integer_ops", "bytes"), 0
    )
    return msgspec.structs.replace(
        graph,
        nodes=tuple(
            node
            if node.flops is None
            else msgspec.structs.replace(
                node, **({"bytes": moved[index]} if index in moved else free)
            )
            for index, node in enumerate(graph.nodes)
        ),
    )


def _flops(node: GraphNode) -> int:
    """Return what the operator counts with: of causal attention its lower triangle."""
    if node.matmul_flops is None or node.vector_flops is None:
        return 0
    causal = "attention" in node.operator.lower() and node.causal_matmul_flops is not None
    products = node.causal_matmul_flops if causal else node.matmul_flops
    return (products or 0) + node.vector_flops


def _kernel_rows(nodes: Sequence[TimedNode], parent: int) -> list[TreeRow]:
    durations: dict[str, list[int]] = {}
    for node in nodes:
        for name, times in node.kernels:
            durations.setdefault(name, []).extend(times)
    calls = nodes[0].recorded_calls
    return [
        TreeRow(
            name=name,
            kind="kernel",
            parent=parent,
            calls=round(len(times) / calls),
            phase="forward",
            device=round(sum(times) / calls),
            kernel=Kernel(durations=tuple(sorted(times))),
        )
        for name, times in durations.items()
    ]
