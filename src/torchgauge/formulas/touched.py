"""Bytes and elements of an argument: a tensor of any layout, its description, or a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from operator import mul
from typing import Any

from torchgauge.formulas.operand import Described

Size = Callable[[Any], int]

# How to measure a value of each type; None for what holds no tensor (numbers, names, None).
_SIZES: dict[type, Size | None] = {}


def touched(value: Any) -> int:
    """Return the bytes that reading or writing the value once moves; 0 where it holds no tensor.

    Dimensions of stride 0 count once, overlapping windows as the memory they span. A sparse tensor
    is its indices and values, a list the sum over its tensors.
    """
    kind = type(value)
    try:
        size = _SIZES[kind]
    except KeyError:
        size = _SIZES[kind] = _size_of(kind)
    return 0 if size is None else size(value)


def elements_of(operand: Any) -> int:
    """Return the elements stored: the specified ones of a sparse tensor, all of a dense one.

    It reads nested tensors too, which have no shape.
    """
    if isinstance(operand, Described):
        return math.prod(operand.shape)
    if _sparse(operand.layout):
        return int(_parts(operand)[-1].numel())
    return int(operand.numel())


def tensors(values: Any) -> Iterator[Any]:
    """Yield the tensors and descriptions among arguments or outputs, those in lists too."""
    if hasattr(type(values), "stride"):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors(value)


def _size_of(kind: type) -> Size | None:
    if issubclass(kind, Described):
        return _strided
    if hasattr(kind, "is_contiguous"):
        return _tensor
    return _sequence if issubclass(kind, tuple | list) else None


def _sequence(values: Any) -> int:
    return sum(map(touched, values))


def _tensor(tensor: Any) -> int:
    try:
        if tensor.is_contiguous():
            return int(tensor.nbytes)
    except RuntimeError:  # compressed sparse tensors answer nothing about strides
        return _sequence(_parts(tensor))
    if _sparse(tensor.layout):
        return _sequence(_parts(tensor))
    return int(tensor.nbytes) if tensor.is_nested else _strided(tensor)


def _strided(operand: Any) -> int:
    sizes, steps = tuple(operand.shape), operand.stride()
    if 0 in sizes:
        return 0
    if 0 in steps:
        elements = math.prod(size for size, step in zip(sizes, steps, strict=True) if step)
    else:
        elements = math.prod(sizes)
    # From the first element to the last: less than the elements where windows overlap.
    span = sum(map(mul, sizes, steps)) - sum(steps) + 1
    return int(min(elements, span) * operand.itemsize)


@cache
def _sparse(layout: Any) -> bool:
    return "sparse" in str(layout)


def _parts(tensor: Any) -> tuple[Any, ...]:
    """Return the index tensors and, last, the values."""
    layout = str(tensor.layout).removeprefix("torch.")
    if layout == "sparse_coo":
        return tensor._indices(), tensor._values()  # noqa: SLF001 - the public ones refuse uncoalesced
    if layout in ("sparse_csr", "sparse_bsr"):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
