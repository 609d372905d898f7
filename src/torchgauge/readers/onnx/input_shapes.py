"""The inputs of a graph: free dimensions, and the sizes that were given for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from onnx import GraphProto, TypeProto, ValueInfoProto

from torchgauge.errors import InputError

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
