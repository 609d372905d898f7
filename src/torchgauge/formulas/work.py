"""The work of one operator call."""

from __future__ import annotations

from typing import NamedTuple

from torchgauge.formulas.operand import Operand, is_complex, is_integer

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
