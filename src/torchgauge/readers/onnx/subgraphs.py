"""What comes out of If, Loop and Scan, and how often their subgraphs run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from torchgauge.errors import InputError
from torchgauge.readers.onnx.element_types import Scope, Value
from torchgauge.readers.onnx.small_values import Attributes
from torchgauge.records.onnx.graph import GraphNode

Dimension = int | str | None


class RequestedShapes(NamedTuple):
    """Sizes of inputs by name, those of others by position, and of every first dimension."""

    named: Mapping[str, Sequence[int]]
    positional: Sequence[Sequence[int]]
    batch: int | None


def inputs_of(graph: GraphProto) -> list[ValueInfoProto]:
    """Return what a call gives: in old files the initializers are among the inputs."""
    stored = {tensor.name for tensor in graph.initializer}
    stored |= {sparse.values.name for sparse in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in stored]


def dimensions(kind: TypeProto) -> tuple[Dimension, ...] | None:
    """Return sizes, names of free dimensions, None for those without one; None without a shape."""
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        dimension.dim_value
        if dimension.WhichOneof("value") == "dim_value" and dimension.dim_value >= 0
        else dimension.dim_param or None
        for dimension in kind.tensor_type.shape.dim
    )


def sizes_of(kind: TypeProto | None) -> tuple[int, ...] | None:
    """Return the shape of a type where every dimension is known."""
    shape = None if kind is None else dimensions(kind)
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return sizes if shape is not None and len(sizes) == len(shape) else None


def resolve(graph: GraphProto, requested: RequestedShapes, path: Path) -> dict[str, int]:
    """Write the sizes into the graph's inputs, and return those of the named dimensions.

    Raises:
        InputError: `onnx-input-shape`: an input that is not there, or sizes that do not fit.
    """
    inputs = inputs_of(graph)
    names = [value.name for value in inputs]
    for name in requested.named:
        if name not in names:
            raise _unfit(path, f"It has no input {name!r}; its inputs are {', '.join(names)}.")
    unnamed = [name for name in names if name not in requested.named]
    if len(requested.positional) > len(unnamed):
        raise _unfit(path, f"It has {len(names)} inputs: {', '.join(names)}.")
    sizes = dict(zip(unnamed, requested.positional, strict=False)) | dict(requested.named)
    bound: dict[str, int] = {}
    first_sizes = [shape[0] for value in inputs if (shape := dimensions(value.type))]
    fixed = [size for size in first_sizes if isinstance(size, int) and size != requested.batch]
    if requested.batch is not None and len(fixed) == len(first_sizes):
        raise _unfit(path, f"The batch is fixed in the file: {', '.join(map(str, fixed))}.")
    for value in inputs:
        if value.type.WhichOneof("value") == "tensor_type":
            _set(value, sizes.get(value.name), requested.batch, bound, path)
    for value in inputs:  # a name that one input gives a size has it in the others
        for dimension in value.type.tensor_type.shape.dim if dimensions(value.type) else ():
            if dimension.dim_param in bound:
                dimension.dim_value = bound[dimension.dim_param]
    return bound


def _set(
    value: ValueInfoProto,
    sizes: Sequence[int] | None,
    batch: int | None,
    bound: dict[str, int],
    path: Path,
) -> None:
    declared = dimensions(value.type)
    shape = value.type.tensor_type.shape
    if declared is None and sizes is not None:
        for size in sizes:
            shape.dim.add().dim_value = size
        return
    if sizes is None and declared and batch is not None and not isinstance(declared[0], int):
        sizes = [batch]
    elif sizes is not None and declared is not None and len(sizes) != len(declared):
        raise _unfit(path, f"{value.name!r} has {len(declared)} dimensions, not {len(sizes)}.")
    for dimension, before, size in zip(shape.dim, declared or (), sizes or (), strict=False):
        if isinstance(before, int) and before != size:
            raise _unfit(
                path,
                f"{value.name!r} is {'x'.join(map(str, declared or ()))}: the {before} is fixed "
                f"in the file and cannot be {size}.",
            )
        if isinstance(before, str) and bound.setdefault(before, size) != size:
            raise _unfit(path, f"{before!r} would be {bound[before]} and {size}.")
        dimension.dim_value = size


def _unfit(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path} cannot be called with these inputs.",
        id="onnx-input-shape",
        cause=cause,
        remedy="Give sizes for its free dimensions alone, or export it with dynamic axes.",
    )


# More calls than any model makes; loops in loops multiply theirs.
MAX_CALLS = 2**40


class Reader(Protocol):
    """What describes the nodes of a graph."""

    nodes: list[GraphNode]

    def run(self, graph: GraphProto, scope: Scope, container: int, calls: int | None) -> None:
        """Describe the nodes of a graph whose inputs are in `scope`; its values are added there."""

    def store(self, graph: GraphProto) -> None:
        """Note the tensors of a graph that does not run."""

    def forget_calls(self, first: int) -> None:
        """Say of the nodes from `first` on that it is not known how often they run."""


class Container(NamedTuple):
    """A node with subgraphs: the values it sees, its index, and how often it runs."""

    scope: Scope
    number: int
    calls: int | None


def outputs_of(
    reader: Reader,
    node: NodeProto,
    inputs: Sequence[Value | None],
    attributes: Attributes,
    container: Container,
) -> list[Value]:
    """Describe the nodes of a container's subgraphs, and return what comes out of it."""
    graphs = attributes.graphs
    if node.op_type == "If" and {"then_branch", "else_branch"} <= graphs.keys():
        return _if(reader, inputs, graphs, container)
    if node.op_type == "Loop" and "body" in graphs:
        return _loop(reader, inputs, graphs["body"], container)
    if node.op_type == "Scan" and "body" in graphs:
        count = attributes.values.get("num_scan_inputs")
        # Before opset 9 the lengths of sequences came first, and a batch.
        is_later = len(inputs) == len(graphs["body"].input)
        if isinstance(count, int) and 0 < count <= len(inputs) and is_later:
            return _scan(reader, inputs, graphs["body"], container, attributes)
    for graph in graphs.values():
        _run(reader, graph, [], container, None)
    return [Value() for _ in node.output]


def _run(
    reader: Reader,
    graph: GraphProto,
    arguments: Sequence[Value],
    container: Container,
    calls: int | None,
) -> list[Value]:
    """Describe a subgraph's nodes, given its arguments; return its outputs."""
    scope = container.scope.new_child()
    for position, value in enumerate(graph.input):
        has_type = position < len(arguments) and arguments[position].kind is not None
        scope[value.name] = arguments[position] if has_type else Value(value.type)
    reader.run(graph, scope, container.number, calls)
    return [scope.get(value.name, Value()) for value in graph.output]


def _if(
    reader: Reader,
    inputs: Sequence[Value | None],
    graphs: dict[str, GraphProto],
    container: Container,
) -> list[Value]:
    condition = inputs[0].data if inputs and inputs[0] is not None else None
    if condition is not None and condition.size == 1:
        name, other = ("then_branch", "else_branch")[:: 1 if condition.ravel()[0] else -1]
        reader.store(graphs[other])
        return _run(reader, graphs[name], [], container, container.calls)
    results = [
        _run(reader, graphs[name], [], container, None) for name in ("then_branch", "else_branch")
    ]
    return [Value(a.kind if a.kind == b.kind else None) for a, b in zip(*results, strict=False)]


def _loop(
    reader: Reader, inputs: Sequence[Value | None], body: GraphProto, container: Container
) -> list[Value]:
    limit, condition = (*inputs, None, None)[:2]
    trips = _number(limit)
    if condition is not None and _number(condition) is None:
        trips = None  # what was computed decides
    elif condition is not None and not _number(condition):
        trips = 0
    carried = [Value(None if value is None else value.kind) for value in inputs[2:]]
    counter = Value(helper.make_tensor_type_proto(TensorProto.INT64, []))
    true = condition._replace(data=None) if condition is not None else Value()
    if trips:
        true = Value(helper.make_tensor_type_proto(TensorProto.BOOL, []), np.array(True))
    first = len(reader.nodes)
    calls = _times(container.calls, trips)
    results = _run(reader, body, [counter, true, *carried], container, calls)
    goes_on, *results = results or [Value()]
    if trips and not _number(goes_on):
        trips = None
        reader.forget_calls(first)
    begun = [
        value.kind or body_input.type
        for value, body_input in zip(carried, body.input[2:], strict=False)
    ]
    if (
        trips
        and trips > 1
        and any(_changes(before, after.kind) for before, after in zip(begun, results, strict=False))
    ):
        reader.forget_calls(first)  # what was described is the first trip
    states = [
        Value(before.kind if before.kind == after.kind else None)
        for before, after in zip(carried, results, strict=False)
    ]
    return [*states, *(_stacked(value, trips, 0) for value in results[len(carried) :])]


def _changes(before: TypeProto, after: TypeProto | None) -> bool:
    """Return whether a size that is known before a trip is another after it, or not known."""
    sizes, results = dimensions(before), None if after is None else dimensions(after)
    if sizes is None:
        return False
    return (
        results is None
        or len(sizes) != len(results)
        or any(isinstance(a, int) and a != b for a, b in zip(sizes, results, strict=True))
    )


def _scan(
    reader: Reader,
    inputs: Sequence[Value | None],
    body: GraphProto,
    container: Container,
    attributes: Attributes,
) -> list[Value]:
    count = attributes.values["num_scan_inputs"]
    states = [Value(None if v is None else v.kind) for v in inputs[: len(inputs) - count]]
    scanned = inputs[len(inputs) - count :]
    axes = attributes.values.get("scan_input_axes") or (0,) * count
    slices, trips = list[Value](), None
    for value, axis in zip(scanned, axes, strict=False):
        shape = None if value is None or value.kind is None else dimensions(value.kind)
        if value is None or value.kind is None or not shape or not -len(shape) <= axis < len(shape):
            slices.append(Value())
            continue
        size = shape[axis]
        trips = size if isinstance(size, int) else None
        sizes = [n for position, n in enumerate(shape) if position != axis % len(shape)]
        kind = helper.make_tensor_type_proto(value.kind.tensor_type.elem_type, sizes)
        slices.append(Value(kind))
    calls = _times(container.calls, trips)
    results = _run(reader, body, [*states, *slices], container, calls)
    after = [
        Value(a.kind if a.kind == b.kind else None) for a, b in zip(states, results, strict=False)
    ]
    axes = attributes.values.get("scan_output_axes") or (0,) * len(results)
    stacked = results[len(states) :]
    return [
        *after,
        *(_stacked(value, trips, axis) for value, axis in zip(stacked, axes, strict=False)),
    ]


def _stacked(value: Value, trips: int | None, axis: int) -> Value:
    """Return the results of all calls as one value."""
    shape = None if value.kind is None else dimensions(value.kind)
    if value.kind is None or shape is None or not 0 <= axis <= len(shape):
        return Value()
    sizes = [*shape[:axis], trips, *shape[axis:]]
    return Value(helper.make_tensor_type_proto(value.kind.tensor_type.elem_type, sizes))


def _times(calls: int | None, trips: int | None) -> int | None:
    if calls is None or trips is None or trips < 0 or calls * trips > MAX_CALLS:
        return None
    return calls * trips


def _number(value: Value | None) -> int | None:
    """Return a value of one element that is known."""
    if value is None or value.data is None or value.data.size != 1:
        return None
    return int(value.data.ravel()[0])
