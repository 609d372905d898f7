"""The graph of an ExecuTorch program: its instructions, with their work and their layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from torchgauge.analyze.onnx.node_work import operand
from torchgauge.analyze.work.recorded_work import Recorded, known_work
from torchgauge.formulas.work import FREE
from torchgauge.readers.executorch.lowering_file import Lowering, Place
from torchgauge.readers.executorch.program_file import Instruction, Method, Tensor
from torchgauge.records.onnx.graph import Graph, GraphNode, Initializer, LayerRule, TensorType
from torchgauge.records.record import LARGEST_INTEGER

# Moves and frees of values, jumps; sizes and views that the runtime computes.
_CONTROL, _PRIMITIVES = "executorch_prim::control", "executorch_prim::"
# What copies a tensor to another order of its dimensions, or another type.
_COPIES = "dim_order_ops::"
DELEGATED = "delegate"


def program_graph(
    path: Path, method: Method, lowering: Lowering | None, *, sizes_known: bool = True
) -> Graph:
    """Return the graph of a method.

    Layers and parameters are those that `lowering` tells. Without `sizes_known` the inputs are not
    of the largest sizes, which are all that a program of dynamic shapes has.
    """
    names = [f"input {number}" for number in range(len(method.inputs))]
    stored = tuple(
        Initializer(
            name=f"constant {number}",
            dtype=tensor.type.dtype,
            shape=tensor.type.sizes or (),
            bytes=_bytes(tensor.type),
        )
        for number, tensor in enumerate(method.stored)
    )
    nodes = tuple(
        _node(number, instruction, method.branches, sizes_known)
        for number, instruction in enumerate(method.instructions)
    )
    return Graph(
        format="executorch",
        name=method.name,
        producer="ExecuTorch",
        opsets={},
        inputs=tuple(names),
        outputs=tuple(f"output {number}" for number in range(len(method.outputs))),
        values={
            name: value.type if isinstance(value, Tensor) else TensorType()
            for name, value in zip(names, method.inputs, strict=True)
        },
        initializers=stored if lowering is None else lowering.tensors,
        nodes=nodes if lowering is None else tuple(_in_layers(nodes, lowering)),
        files=(path.name,),
        file_bytes=path.stat().st_size,
    )


def _node(number: int, call: Instruction, branches: bool, sizes_known: bool) -> GraphNode:
    name = call.operator or _CONTROL
    domain, _, operator = (name, "", DELEGATED) if call.delegated else name.partition("::")
    operands, written = _divided(call)
    types = [t.type for t in _tensors(operands)]
    node = GraphNode(
        name=str(number),
        operator=operator.partition(".")[0],
        domain=domain,
        input_types=tuple(types),
        output_types=tuple(t.type for t in _tensors(written)),
        calls=None if branches else 1,
    )
    unknown = not sizes_known and any(t.bounded for t in _tensors(call.arguments))
    if branches or call.delegated or unknown:
        return node
    return _with_work(node, _work(name, operands, written))


def _divided(call: Instruction) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the operands of a call, and what it writes.

    Of an operator the last argument is what it returns, once more after what it writes.
    """
    if call.delegated or not call.arguments:
        return call.arguments, ()
    returned = call.arguments[-1]
    several = isinstance(returned, tuple) and not isinstance(returned, Tensor)
    written = returned if several else (returned,)
    is_out = (call.operator or "").endswith("out")
    return call.arguments[: -1 - (len(written) if is_out else 0)], written


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


def _work(name: str, operands: tuple[Any, ...], written: tuple[Any, ...]) -> Recorded:
    if name.startswith(_PRIMITIVES):
        return Recorded(FREE, 0)
    if name.startswith(_COPIES):
        name = "aten::clone"
    results = tuple(map(_described, written))
    return known_work(
        name, tuple(map(_described, operands)), results[0] if len(results) == 1 else results
    )


def _described(value: Any) -> Any:
    """Return an argument as formulas take it."""
    if isinstance(value, Tensor):
        return operand(value.type)
    return list(map(_described, value)) if isinstance(value, tuple) else value


def _with_work(node: GraphNode, recorded: Recorded) -> GraphNode:
    work, moved = recorded.work, recorded.bytes
    if work is None or moved is None:
        return node
    causal = work.matmul if work.causal is None else work.causal
    if max(work.matmul, causal, work.vector, work.integer, moved) >= LARGEST_INTEGER:
        return node
    return msgspec.structs.replace(
        node,
        matmul_flops=work.matmul,
        causal_matmul_flops=causal,
        vector_flops=work.vector,
        integer_ops=work.integer,
        bytes=round(moved),
        estimated=work.estimated,
    )


def _in_layers(nodes: Iterable[GraphNode], lowering: Lowering) -> Iterator[GraphNode]:
    """Yield the nodes with their layers; one that the record does not know is with the one before.

    The compiler adds such ones, to convert or to view what another one has written.
    """
    before: Place | None = None
    for number, node in enumerate(nodes):
        place = lowering.places.get(number)
        rule: LayerRule = "metadata" if place is not None else "neighbours"
        before = place or before
        if before is None:
            yield node
            continue
        yield msgspec.structs.replace(
            node,
            inputs=() if place is None else place.parameters,
            layer=before.path,
            layer_type=before.type,
            rule=rule,
        )


def _bytes(kind: TensorType) -> int:
    described = operand(kind)
    return round((kind.elements or 0) * getattr(described, "itemsize", 0))
