"""Work of operators by kind: elementwise, reductions, lists of tensors."""

from __future__ import annotations

from functools import cache
from typing import Any

from torchgauge.formulas.operand import Described, is_complex, is_integer
from torchgauge.formulas.touched import elements_of, tensors
from torchgauge.formulas.work import FREE, Work, vector

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
