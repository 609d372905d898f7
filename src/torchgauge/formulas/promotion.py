"""The type of what an operator writes: torch's promotion of its tensors, and its `dtype`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge.formulas.operand import (
    Described,
    MissingOperandError,
    MissingTensor,
    MissingValue,
    is_complex,
    is_integer,
)
from torchgauge.formulas.shapes import broadcast, like

ElementType = tuple[str, int]  # torch's name and the bytes of an element

# torch's numbers of types, as a trace has the argument `dtype`.
_NUMBERED: dict[int, ElementType] = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8),
    5: ("float16", 2), 6: ("float32", 4), 7: ("float64", 8), 8: ("complex32", 4),
    9: ("complex64", 8), 10: ("complex128", 16), 11: ("bool", 1), 15: ("bfloat16", 2),
}  # fmt: skip
BOOL, INT64, FLOAT32 = _NUMBERED[11], _NUMBERED[4], _NUMBERED[6]


def common(operands: tuple[Any, ...]) -> Described:
    """Return the tensor that the tensors broadcast to, in the type that torch promotes to.

    Tensors without dimensions count only where they are of a higher kind than the others.
    """
    tensors = [operand for operand in operands if isinstance(operand, Described)]
    if not tensors or any(isinstance(operand, MissingTensor) for operand in operands):
        raise MissingOperandError("the sizes of an operand")
    shape = broadcast([tensor.shape for tensor in tensors])
    wide = [tensor for tensor in tensors if tensor.shape] or tensors
    single = [tensor for tensor in tensors if not tensor.shape]
    result = _promoted(wide)
    if single and max(map(_rank, single)) > _rank(result):
        result = _promoted([result, *single])
    return like(result, shape)


def _rank(tensor: Described) -> int:
    if is_complex(tensor):
        return 3
    return 2 if not is_integer(tensor) else int(tensor.dtype != "bool")


def _promoted(tensors: Sequence[Described]) -> Described:
    highest = max(map(_rank, tensors))
    candidates = [tensor for tensor in tensors if _rank(tensor) == highest]
    widest = max(candidates, key=lambda tensor: tensor.itemsize)
    if any(
        tensor.itemsize == widest.itemsize and tensor.dtype != widest.dtype for tensor in candidates
    ) or (highest == 3 and len({tensor.dtype for tensor in tensors}) > 1):
        raise MissingOperandError("the type of its output")
    return widest


def typed(shape: Sequence[int], kind: ElementType) -> Described:
    """Return a contiguous tensor of these sizes and this type."""
    return Described(tuple(shape), kind[0], (), kind[1])


def in_type(dtype: Any, operand: Described) -> Described:
    """Return the tensor in the type of the argument `dtype`, its own where that is None."""
    if dtype is None:
        return like(operand, operand.shape)
    if isinstance(dtype, MissingValue) or type(dtype) is not int or dtype not in _NUMBERED:
        raise MissingOperandError("the type of its output")
    return typed(operand.shape, _NUMBERED[dtype])
