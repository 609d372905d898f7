"""Operands of formulas: real tensors, descriptions of them, and what is not known of a call."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple, NoReturn, Protocol


def is_nested(operand: Any) -> bool:
    """Return True for a nested tensor of either layout; False for a description."""
    return bool(getattr(operand, "is_nested", False))


def parts(operand: Any) -> list[list[int]]:
    """Return the sizes of each part along the first dimension, of a nested or a dense tensor."""
    if not is_nested(operand):
        return [list(operand.shape[1:])] * operand.shape[0]
    if hasattr(operand, "offsets"):  # jagged: one dimension differs from part to part
        return _jagged(operand)
    return [[int(size) for size in sizes] for sizes in operand._nested_tensor_size().tolist()]  # noqa: SLF001


def _jagged(operand: Any) -> list[list[int]]:
    ragged = operand._ragged_idx  # noqa: SLF001 - there is no public name for it
    lengths = operand.lengths()
    if lengths is None:
        lengths = operand.offsets().diff()
    sizes = list(operand.shape)
    return [[*sizes[1:ragged], int(length), *sizes[ragged + 1 :]] for length in lengths.tolist()]


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


# Re·Re − Im·Im and Re·Im + Im·Re are four real multiplications and two additions, and adding the
# product to a sum takes two more: 8 FLOP where a real multiply-accumulate takes 2.
COMPLEX_MAC, REAL_MAC = 8, 2


class Work(NamedTuple):
    """Operations of one call: `matmul` and `vector` in FLOP, `integer` in integer operations.

    `matmul` is products (matrices, convolutions, attention, recurrent gates). `causal` is the same
    with causal attention at its exact lower triangle; None where it does not differ. `estimated`
    marks work that shapes alone do not tell exactly.
    """

    matmul: int = 0
    vector: int = 0
    integer: int = 0
    causal: int | None = None
    estimated: bool = False


FREE = Work()


def product(multiplications: int, operand: Operand) -> Work:
    """Return the work of that many multiply-accumulates on elements of the operand's type."""
    if is_integer(operand):
        return Work(integer=REAL_MAC * multiplications)
    return Work(matmul=(COMPLEX_MAC if is_complex(operand) else REAL_MAC) * multiplications)


def vector(operations: int, *operands: Operand | None) -> Work:
    """Return elementwise work: FLOP where any operand is real or complex, else integer work."""
    if all(operand is None or is_integer(operand) for operand in operands):
        return Work(integer=operations)
    return Work(vector=operations)
