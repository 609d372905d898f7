"""Distances between all pairs of rows: a difference, a power and an addition per component."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.work import Work, vector

PER_COMPONENT = 3
# The difference, its power's derivative, the product with the gradient, and the addition.
BACKWARD = 4


def _pairs(operand: Operand) -> int:
    rows, components = operand.shape
    return int(rows * (rows - 1) // 2 * components)


@formula("aten::_pdist_forward")
def pdist(operand: Operand, p: float = 2) -> Work:
    """Three per component of the n·(n − 1)/2 pairs."""
    return vector(PER_COMPONENT * _pairs(operand), operand)


@formula("aten::_pdist_backward")
def pdist_backward(gradient: Any, operand: Operand, p: float, distances: Any) -> Work:
    """Four per component of the pairs, each added to both rows: five."""
    return vector((BACKWARD + 1) * _pairs(operand), operand)
