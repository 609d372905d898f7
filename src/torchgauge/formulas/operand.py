"""Operands of formulas: tensors, descriptions of them, their bytes, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from operator import mul
from typing import Any, NamedTuple, NoReturn, Protocol

Size = Callable[[Any], int]

# How to measure a value of each type; None for what holds no tensor (numbers, names, None).
_SIZES: dict[type, Size | None] = {}


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
