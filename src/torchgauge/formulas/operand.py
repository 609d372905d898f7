"""Operands of formulas: real tensors, or descriptions of them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple, Protocol


class Operand(Protocol):
    """The part of a tensor's interface that formulas read; torch.Tensor has it already."""

    @property
    def shape(self) -> Any:
        """Sizes of the dimensions, as a sequence of integers."""

    @property
    def dtype(self) -> Any:
        """The element type, printed as "float32" or "torch.float32"."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""

    def stride(self) -> Any:
        """Elements from one index of a dimension to the next, as a sequence."""


class Described(NamedTuple):
    """A tensor known by its description alone, as in a recorded trace; `strides` () if unknown."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] = ()
    itemsize: int = 4

    def stride(self) -> tuple[int, ...]:
        """Return the strides that are known, else those of a contiguous tensor."""
        if self.strides or not self.shape:
            return self.strides
        steps = [1]
        for size in reversed(self.shape[1:]):
            steps.append(steps[-1] * size)
        return tuple(reversed(steps))


def elements(operand: Operand) -> int:
    """Return the number of elements."""
    return math.prod(operand.shape)


@cache
def _kind(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if name.startswith("complex"):
        return "complex"
    return "float" if name.startswith(("float", "bfloat", "half", "double")) else "integer"


def is_complex(operand: Operand) -> bool:
    """Return True for complex32, complex64 and complex128."""
    return _kind(operand.dtype) == "complex"


def is_integer(operand: Operand) -> bool:
    """Return True for every type that is neither real nor complex: integers, bool, quantised."""
    return _kind(operand.dtype) == "integer"
