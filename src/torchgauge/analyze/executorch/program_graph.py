"""The graph of an ExecuTorch program: its instructions, with their work, layers and times."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from torchgauge.analyze.onnx.layers import is_usable
from torchgauge.analyze.onnx.node_tree import TimedNode
from torchgauge.analyze.onnx.node_work import operand
from torchgauge.analyze.work.recorded_work import Recorded, known_work
from torchgauge.errors import InputError
from torchgauge.formulas.operand import FREE
from torchgauge.readers.executorch.flatbuffer import DumpEvent, DumpRun
from torchgauge.readers.executorch.lowering_file import InstructionLayer, Lowering, Sizes
from torchgauge.readers.executorch.program_file import DELEGATED, Instruction, Method, Tensor
from torchgauge.records.onnx.graph import Graph, GraphNode, Initializer, LayerRule, TensorType
from torchgauge.records.record import LARGEST_INTEGER

# Moves and frees of values, jumps; sizes and views that the runtime computes.
_CONTROL, _PRIMITIVES = "executorch_prim::control", "executorch_prim::"
# What copies a tensor to another order of its dimensions, or another type.
_COPIES = "dim_order_ops::"
# What makes a value, or sizes, that no sizes tell; `index` does so by a mask.
_BY_VALUES = ("_local_scalar_dense", "argwhere", "bincount", "masked_select", "nonzero", "_unique",
              "_unique2", "unique_consecutive", "unique_dim")  # fmt: skip


def program_graph(
    path: Path, method: Method, lowering: Lowering | None, *, sizes_known: bool = True
) -> Graph:
    """Return the graph of a method.

    Layers and parameters are those that `lowering` tells. Without `sizes_known` the inputs are not
    of the largest sizes, which are all that a program of dynamic shapes has. Raises InputError
    `etrecord-unfit` where the record is that of another program.
    """
    if lowering is not None:
        _check_record(path, method, lowering)
    # Values have their largest sizes until anything but the sizes of inputs decides them.
    sizes_known &= any(tensor.bounded for tensor in _tensors(method.inputs))
    calls = method.instructions
    end = next((n for n, call in enumerate(calls) if _decides_sizes(call)), len(calls))
    names = [f"input {number}" for number in range(len(method.inputs))]
    nodes = tuple(
        _node(number, call, method.branches, sizes_known and number < end)
        for number, call in enumerate(calls)
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
        initializers=_stored(method) if lowering is None else lowering.tensors,
        nodes=nodes if lowering is None else tuple(_in_layers(nodes, lowering)),
        files=(path.name,),
        file_bytes=path.stat().st_size,
    )


def _stored(method: Method) -> tuple[Initializer, ...]:
    first: dict[int, str] = {}
    return tuple(
        Initializer(
            name=name,
            dtype=tensor.type.dtype,
            shape=tensor.type.sizes or (),
            bytes=_bytes(tensor.type),
            shared=shared if (shared := first.setdefault(tensor.buffer, name)) != name else "",
        )
        for name, tensor in ((f"constant {n}", tensor) for n, tensor in enumerate(method.stored))
    )


def _check_record(path: Path, method: Method, lowering: Lowering) -> None:
    """Raise InputError `etrecord-unfit` where the record has other inputs or instructions."""
    calls, layers, cause = method.instructions, lowering.layers, ""
    inputs = list(_tensors(method.inputs))
    operators = {
        number
        for number, call in enumerate(calls)
        if call.operator is not None and not call.operator.startswith(_PRIMITIVES)
    }
    if len(inputs) != len(lowering.inputs) or not all(map(_fits, inputs, lowering.inputs)):
        cause = "The inputs have other sizes."
    elif layers and not 0 <= min(layers) <= max(layers) < len(calls):
        cause = f"It has instruction {max(layers)}, and the program has {len(calls)} instructions."
    elif 2 * len(layers.keys() & operators) < len(operators):
        cause = "It has few of the program's instructions."
    elif misfits := [number for number, own in layers.items() if not _is_of(calls[number], own)]:
        cause = f"Instruction {misfits[0]} returns other sizes."
    if cause:
        raise InputError(
            f"{lowering.file} is not the record of {path}.",
            id="etrecord-unfit",
            cause=cause,
            remedy="Give the record that was written with this program, or leave --etrecord out.",
        )


def _is_of(call: Instruction, own: InstructionLayer) -> bool:
    """Return False where the record has the instruction's operator, but with other sizes."""
    name = (call.operator or "").partition("::")[2].partition(".")[0]
    results = [sizes for operator, sizes in own.results if operator == name]
    written = next(_tensors(_divided(call)[1]), None)
    return not results or written is None or any(_fits(written, sizes) for sizes in results)


def _fits(tensor: Tensor, sizes: Sizes) -> bool:
    shape = tensor.type.sizes
    if shape is None or len(shape) != len(sizes):
        return shape is None
    return all(size in (None, own) for own, size in zip(shape, sizes, strict=True))


def _decides_sizes(call: Instruction) -> bool:
    """Return whether sizes of what it makes, or of what reads that, depend on values."""
    name = (call.operator or "").removeprefix("aten::").partition(".")[0]
    indices = _tensors(value for value in call.arguments if type(value) is tuple)
    masked = name == "index" and any(t.type.dtype in ("bool", "uint8") for t in indices)
    return masked or name in _BY_VALUES


def _node(number: int, call: Instruction, branches: bool, are_largest: bool) -> GraphNode:
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
    unknown = not are_largest and any(t.bounded for t in _tensors(call.arguments))
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
    path, kind = None, ""
    for number, node in enumerate(nodes):
        own = lowering.layers.get(number, InstructionLayer(None))
        rule: LayerRule = "none" if path is None else "neighbours"
        if own.path is not None and is_usable(own.path):
            path, kind, rule = own.path, own.type, "metadata"
        yield msgspec.structs.replace(
            node, inputs=own.parameters, layer=path, layer_type=kind, rule=rule
        )


def _bytes(kind: TensorType) -> int:
    described = operand(kind)
    return round((kind.elements or 0) * getattr(described, "itemsize", 0))


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
