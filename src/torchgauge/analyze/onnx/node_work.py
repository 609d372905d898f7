"""FLOPs and bytes of each node of an ONNX graph, by the formulas of its operator and its types.

The cost of one call of an ONNX graph: its nodes' work by layer and operator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from torchgauge.analyze.onnx import graph_size
from torchgauge.errors import TorchgaugeError, text_of
from torchgauge.formulas.onnx_kinds import CONTAINERS, GATHERING, STILL
from torchgauge.formulas.operand import Described, MissingOperandError, MissingTensor, Work, touched
from torchgauge.formulas.registry import as_work, find
from torchgauge.formulas.traffic import bytes_of
from torchgauge.records.onnx.graph import Graph, GraphFacts, GraphNode, LayerRule, TensorType
from torchgauge.records.record import LARGEST_INTEGER, MeasurementWarning
from torchgauge.records.work.cost import Cost, CostNode, CostRow

BITS = {"complex128": 128, "complex64": 64, "float64": 64, "int64": 64, "uint64": 64, "string": 64,
        "float32": 32, "int32": 32, "uint32": 32, "qint32": 32, "complex32": 32, "float16": 16,
        "bfloat16": 16, "int16": 16, "uint16": 16, "bits16": 16, "uint4": 4,
        "int4": 4, "float4_e2m1": 4, "uint2": 2, "int2": 2}  # fmt: skip
# The layer of nodes for which no rule finds one, beside others that have theirs.
NO_LAYER = "(no layer)"
_Key = tuple[int, str, str, bool]  # a layer's number, operator, element type, whether it is known


def with_work(graph: Graph) -> Graph:
    """Return the graph with the work of each node in all of its calls; None where it is unknown.

    A formula that raises is a warning of the graph, and its operator's work unknown.
    """
    failures: dict[str, str] = {}
    nodes = tuple(_worked(node, failures) for node in graph.nodes)
    warnings = [
        MeasurementWarning(
            id="formula-failed",
            message=f"The formula of {operator} failed; its work is unknown.",
            probe="cost",
            cause=cause,
        )
        for operator, cause in failures.items()
    ]
    return msgspec.structs.replace(graph, nodes=nodes, warnings=(*graph.warnings, *warnings))


def _worked(node: GraphNode, failures: dict[str, str]) -> GraphNode:
    calls = node.calls
    work = None if calls is None else _work(node, failures)
    if calls is None or work is None:
        return node
    moved = _bytes(node)
    causal = work.matmul if work.causal is None else work.causal
    if moved is None:
        return node
    figures = [calls * figure for figure in (work.matmul, causal, work.vector, work.integer, moved)]
    if max(figures) >= LARGEST_INTEGER:
        return node
    return msgspec.structs.replace(
        node,
        matmul_flops=figures[0],
        causal_matmul_flops=figures[1],
        vector_flops=figures[2],
        integer_ops=figures[3],
        bytes=figures[4],
        estimated=work.estimated,
    )


def _work(node: GraphNode, failures: dict[str, str]) -> Work | None:
    """Return the work of one call; None without a formula, or without the shapes that it reads."""
    operator = node.full_operator
    registered = find(operator)
    if registered is None:
        return None
    function, wants_outputs = registered
    named: dict[str, Any] = dict(node.attributes)
    if wants_outputs:
        named["outputs"] = _outputs(node)
    try:
        result = function(*_operands(node), **named)
        return None if result is None else as_work(result)
    except MissingOperandError:
        return None
    except TorchgaugeError as error:
        failures.setdefault(operator, error.message)
    except Exception as error:  # noqa: BLE001 - a formula may be the user's, a node may lack inputs
        failures.setdefault(operator, text_of(error))
    return None


def _bytes(node: GraphNode) -> int | None:
    operator = node.full_operator
    if operator in STILL or operator in CONTAINERS:
        return 0
    operands, outputs = _operands(node), _outputs(node)
    results = outputs if isinstance(outputs, tuple) else (outputs,)
    if any(isinstance(operand, MissingTensor) for operand in (*operands, *results)):
        return None
    return round(bytes_of(operator, tuple(operands), {}, outputs))


def _operands(node: GraphNode) -> list[Any]:
    """Return the inputs, None for one that is left out; a value that is there twice is one."""
    operands = {
        name: operand(kind) for name, kind in zip(node.inputs, node.input_types, strict=False)
    }
    return [operands[name] if name else None for name in node.inputs if name in operands]


def moved_bytes(graph: Graph, origin_sets: Iterable[Sequence[int]]) -> dict[int, int | None]:
    """Return the bytes of nodes that became others, by their index.

    What one of a set makes for another is neither written nor read where they are one node.
    """
    readers = Counter(name for node in graph.nodes for name in set(node.inputs))
    moved: dict[int, int | None] = {}
    for origins in origin_sets:
        nodes = {index: graph.nodes[index] for index in sorted(origins)}
        reads = Counter(name for node in nodes.values() for name in set(node.inputs))
        inside = {name for node in nodes.values() for name in node.outputs if name}
        outgoing = {
            name
            for name in inside
            if name in graph.outputs or not reads[name] or readers[name] > reads[name]
        }
        for node in reversed(nodes.values()):
            if node.full_operator in STILL and outgoing.intersection(node.outputs):
                outgoing.update(node.inputs)  # which its outputs are another view of
        present = set(inside)
        for index, node in nodes.items():
            moves = node.full_operator not in STILL | CONTAINERS
            moved[index] = _moved(node, present, inside - outgoing) if moves else node.bytes
            present.update(node.inputs if moves else ())
    return moved


def _moved(node: GraphNode, present: set[str], unwritten: set[str]) -> int | None:
    """Return a node's bytes without the values that are `present` already and the `unwritten`."""
    if node.bytes is None:
        return None
    gathers = node.full_operator in GATHERING
    outputs = _outputs(node)
    read = [
        touched(outputs) if gathers and position == 0 else touched(operand(kind))
        for position, (name, kind) in enumerate(zip(node.inputs, node.input_types, strict=False))
        if name in present and name not in node.inputs[:position]
    ]
    written = [
        touched(operand(kind))
        for name, kind in zip(node.outputs, node.output_types, strict=False)
        if name in unwritten
    ]
    return max(0, node.bytes - (node.calls or 1) * (sum(read) + sum(written)))


def _outputs(node: GraphNode) -> Any:
    outputs = tuple(
        operand(kind) for name, kind in zip(node.outputs, node.output_types, strict=False) if name
    )
    return outputs[0] if len(outputs) == 1 else outputs


def operand(kind: TensorType) -> Described | MissingTensor:
    """Return a value as formulas see it."""
    sizes = kind.sizes
    if sizes is None or not kind.dtype:
        return MissingTensor("the shape of a value")
    bits = BITS.get(kind.dtype, 8)
    # Of types smaller than a byte several share one.
    return Described(sizes, kind.dtype, (), bits // 8 if bits >= 8 else bits / 8)  # type: ignore[arg-type]


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
        made_parameters=graph_size.made_elements(graph) if graph.format == "onnx" else 0,
        computed_convolutions=graph_size.computed_convolutions(graph)
        if graph.format == "onnx"
        else 0,
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
        if not graph_size.knows_parameters(self._graph):
            return [None] * len(self._order)
        elements = graph_size.parameter_elements(self._graph)
        totals = [0] * len(self._order)
        for node in self._graph.nodes:
            for name in node.inputs:
                totals[self.number_of(node)] += elements.pop(name, 0)
        totals[0] += sum(elements.values())  # what no node reads
        for number in range(len(totals) - 1, 0, -1):
            totals[self._order[number][1]] += totals[number]
        return totals
