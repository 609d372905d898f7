"""Operators that take a fixed number of operations for each element of one argument."""

from __future__ import annotations

from typing import Any

from torchgauge.formulas.operand import Work, elements_of, vector
from torchgauge.formulas.registry import formula


def per_element(
    family: str, operations: int, *names: str, counted: int = 0, typed: int = 0
) -> None:
    """Register the formula of operators by the number of operations per element.

    Args:
        family: The module that registers them: their category follows from it.
        operations: How many per element.
        names: The operators.
        counted: The place of the argument whose elements are counted.
        typed: The place of the argument whose type says whether they are FLOP.
    """

    def work(*args: Any, **_named: Any) -> Work:
        return vector(operations * elements_of(args[counted]), args[typed])

    work.__module__ = family
    formula(*names)(work)
