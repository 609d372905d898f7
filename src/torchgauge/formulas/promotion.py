"""The type of what an operator writes: torch's promotion of its tensors, and its `dtype`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from torchgauge.formulas.operand import (
    FREE,
    Described,
    MissingOperandError,
    MissingTensor,
    MissingValue,
    Work,
    elements_of,
    is_complex,
    is_integer,
    tensors,
    vector,
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


# Real operations per complex element, on (a + bi) and (c + di). A product is four multiplications
# and two additions; a quotient is three of those products' worth of multiplications (six), three
# additions and two divisions; a magnitude two multiplications, an addition and a root.
COMPLEX = {"add": 2, "sub": 2, "mul": 6, "div": 11, "prod": 6, "abs": 4, "linalg_vector_norm": 4}
OTHER_COMPLEX = 2  # one operation per component
REAL_OF_COMPLEX = frozenset({"abs", "angle"})


def pointwise_work(name: str, inputs: Any, outputs: Any, operations: int = 1) -> Work:
    """Return the work of `operations` per output element; where no tensor comes out, per input's.

    `name` is the operator's without namespace, for complex elements. Work on integers alone counts
    as integer operations.
    """
    result = outputs if hasattr(outputs, "stride") else _result(inputs, outputs)
    if result is None:
        return FREE
    count = operations * elements_of(result)
    if _real(result.dtype) and name not in REAL_OF_COMPLEX:
        return Work(0, count)
    input_tensors = list(tensors(inputs))
    if is_complex(result) or (input_tensors and is_complex(input_tensors[0])):
        return Work(0, count * COMPLEX.get(name, OTHER_COMPLEX))
    return vector(count, result, *input_tensors)


def _result(inputs: Any, outputs: Any) -> Any:
    first = next(tensors(outputs), None)
    return max(tensors(inputs), key=elements_of, default=None) if first is None else first


@cache
def _real(dtype: Any) -> bool:
    sample = Described((), dtype)
    return not is_integer(sample) and not is_complex(sample)


def reduction_work(name: str, inputs: Any, operations: int = 1) -> Work:
    """Return the work of `operations` per element of the first tensor that goes in."""
    operand = next(tensors(inputs), None)
    if operand is None:
        return FREE
    rate = operations
    if is_complex(operand):
        rate *= COMPLEX.get(name, OTHER_COMPLEX)
    return vector(rate * elements_of(operand), operand)


def summed(works: Any) -> Work:
    """Return the sum of works; `causal` is set where it is in any of them."""
    matmul = vector_ = integer = causal = 0
    differs = estimated = False
    for work in works:
        matmul += work.matmul
        vector_ += work.vector
        integer += work.integer
        causal += work.matmul if work.causal is None else work.causal
        differs |= work.causal is not None
        estimated |= work.estimated
    return Work(matmul, vector_, integer, causal if differs else None, estimated)
