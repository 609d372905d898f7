"""The cost of one call of an ONNX graph: its nodes' work by layer and operator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from torchgauge.analyze.onnx.graph_size import (
    computed_convolutions,
    knows_parameters,
    made_elements,
    parameter_elements,
)
from torchgauge.records.onnx.graph import Graph, GraphFacts, GraphNode, LayerRule
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import Cost, CostNode, CostRow

# The layer of nodes for which no rule finds one, beside others that have theirs.
NO_LAYER = "(no layer)"
_Key = tuple[int, str, str, bool]  # a layer's number, operator, element type, whether it is known


def graph_cost(graph: Graph) -> Cost:
    """Return the work by layer and operator; a node whose work is unknown is listed as such."""
    layers = _Layers(graph)
    sums: dict[_Key, list[int]] = {}
    estimated: dict[_Key, bool] = defaultdict(bool)
    for node in graph.nodes:
        has_work = node.flops is not None
        key = (layers.number_of(node), node.full_operator, _dtype(node), has_work)
        amounts = sums.setdefault(key, [0] * 6)
        figures = (node.matmul_flops, node.causal_matmul_flops, node.vector_flops,
                   node.integer_ops, node.bytes)  # fmt: skip
        amounts[0] += 1 if node.calls is None else node.calls
        for position, figure in enumerate(figures, 1):
            amounts[position] += figure or 0
        estimated[key] |= node.estimated
    return Cost(
        nodes=layers.nodes(),
        rows=tuple(
            CostRow(
                node=number,
                operator=operator,
                phase="forward",
                dtype=dtype,
                calls=amounts[0],
                matmul_flops=amounts[1],
                causal_matmul_flops=amounts[2],
                vector_flops=amounts[3],
                integer_ops=amounts[4],
                bytes=amounts[5],
                has_formula=has_work,
                estimated=estimated[number, operator, dtype, has_work],
            )
            for (number, operator, dtype, has_work), amounts in sums.items()
            if amounts[0]
        ),
        backward=False,
        counted_on=graph.format,
        warnings=(*graph.warnings, *_custom(graph)),
    )


def graph_facts(graph: Graph) -> GraphFacts:
    """Return what a record says of the graph."""
    rules: Counter[LayerRule] = Counter(node.rule for node in graph.nodes)
    return GraphFacts(
        format=graph.format,
        producer=graph.producer,
        opsets=graph.opsets,
        nodes=len(graph.nodes),
        nodes_by_rule=dict(rules.most_common()),
        made_parameters=made_elements(graph) if graph.format == "onnx" else 0,
        computed_convolutions=computed_convolutions(graph) if graph.format == "onnx" else 0,
    )


def _dtype(node: GraphNode) -> str:
    """Return the type of the first floating input, else of the first."""
    types = [kind.dtype for kind in (*node.input_types, *node.output_types) if kind.dtype]
    return next((name for name in types if "float" in name), types[0] if types else "")


def _custom(graph: Graph) -> list[MeasurementWarning]:
    if not graph.custom_domains:
        return []
    return [
        MeasurementWarning(
            id="onnx-custom-operators",
            message=f"The file has operators of {', '.join(graph.custom_domains)}, which run only "
            "with the library that has them.",
            probe="cost",
            remedy="Give them a formula with torchgauge.flop_formula('domain::Operator').",
        )
    ]


class _Layers:
    """The tree of layers that the nodes' paths make, numbered with a parent before its children."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._without = NO_LAYER if any(node.layer for node in graph.nodes) else ""
        self._types: dict[str, str] = {}
        children: dict[str, dict[str, None]] = {"": {}}
        for node in graph.nodes:
            path = self._path(node)
            if node.layer_type and node.layer == path:
                self._types.setdefault(path, node.layer_type)
            while path and path not in children:
                children[path] = {}
                path = path.rpartition(".")[0]
        for path in list(children)[1:]:
            children[path.rpartition(".")[0]][path] = None
        self._order: list[tuple[str, int]] = []
        self._numbers: dict[str, int] = {}
        pending = [("", -1)]
        while pending:
            path, parent = pending.pop()
            number = self._numbers[path] = len(self._order)
            self._order.append((path, parent))
            pending += [(child, number) for child in reversed(children[path])]

    def number_of(self, node: GraphNode) -> int:
        """Return the number of the node's layer."""
        return self._numbers[self._path(node)]

    def nodes(self) -> tuple[CostNode, ...]:
        """Return the layers in their order."""
        parameters = self._parameters()
        return tuple(
            CostNode(
                name=path.rpartition(".")[2] if path else self._graph.name,
                path=path,
                kind=self._types.get(path, ""),
                parent=parent,
                calls=1,
                parameters=parameters[number],
            )
            for number, (path, parent) in enumerate(self._order)
        )

    def _path(self, node: GraphNode) -> str:
        return self._without if node.layer is None else node.layer

    def _parameters(self) -> Sequence[int | None]:
        """Return the elements of each layer's parameters, in the layer that reads them first."""
        if not knows_parameters(self._graph):
            return [None] * len(self._order)
        elements = parameter_elements(self._graph)
        totals = [0] * len(self._order)
        for node in self._graph.nodes:
            for name in node.inputs:
                totals[self.number_of(node)] += elements.pop(name, 0)
        totals[0] += sum(elements.values())  # what no node reads
        for number in range(len(totals) - 1, 0, -1):
            totals[self._order[number][1]] += totals[number]
        return totals
