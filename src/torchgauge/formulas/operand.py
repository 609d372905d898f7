"""Operands of formulas: real tensors, descriptions of them, and what is not known of a call."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple, NoReturn, Protocol


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


class MissingOperandError(Exception):
    """The trace lacks what a formula asks for; the message says what."""


class MissingValue:
    """A number, flag or list of numbers that the trace has no value of."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def refuse(self, *_args: Any) -> NoReturn:
        """Raise MissingOperandError."""
        raise MissingOperandError(self._reason)

    __getattr__ = __bool__ = __iter__ = __len__ = __getitem__ = __int__ = __index__ = refuse
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __add__ = __mul__ = __float__ = refuse
    __hash__ = None  # type: ignore[assignment]


class MissingTensor(MissingValue):
    """A tensor, or a list of them, of which the trace does not have the sizes."""

    stride = property(MissingValue.refuse)


class Untyped(Described):
    """A tensor whose sizes are known and whose element type is not."""

    __slots__ = ()

    @property
    def dtype(self) -> NoReturn:
        """Raise."""
        raise MissingOperandError("the types in a list of tensors")

    @property
    def itemsize(self) -> NoReturn:
        """Raise."""
        raise MissingOperandError("the types in a list of tensors")


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
