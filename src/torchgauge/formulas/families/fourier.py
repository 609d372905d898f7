"""Fourier transforms: 5·N·log2 N real operations per complex transform of N points.

Source: the operation count of the radix-2 Cooley–Tukey algorithm, as benchmarks of transforms use
it (Frigo and Johnson, "The Design and Implementation of FFTW3", 2005). Half of it where the input
or the output is real. Estimated: other algorithms need fewer operations.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.operand import Operand, elements
from torchgauge.formulas.registry import formula
from torchgauge.formulas.touched import tensors
from torchgauge.formulas.work import Work

COMPLEX, REAL = 5.0, 2.5


def _transform(rate: float, full: Operand, dims: Any) -> Work:
    """`full` is the side with all N points: batches · 5·N·log2 N, N the product over `dims`."""
    points = math.prod(full.shape[dim] for dim in dims)
    steps = math.log2(points) if points > 1 else 0.0
    return Work(vector=round(rate * elements(full) * steps), estimated=True)


@formula("aten::_fft_c2c")
def complex_transform(operand: Operand, dim: Any, *_args: Any, **_named: Any) -> Work:
    """5·N·log2 N per transform."""
    return _transform(COMPLEX, operand, dim)


@formula("aten::_fft_r2c")
def from_real(operand: Operand, dim: Any, *_args: Any, **_named: Any) -> Work:
    """2.5·N·log2 N per transform of N real points."""
    return _transform(REAL, operand, dim)


@formula("aten::_fft_c2r")
def to_real(operand: Operand, dim: Any, *_args: Any, outputs: Any, **_named: Any) -> Work:
    """2.5·N·log2 N per transform to N real points."""
    return _transform(REAL, next(tensors(outputs)), dim)


@formula("prims::fft_c2c", "prims::fft_r2c")
def primitive_transform(operand: Operand, *, dim: Any, **named: Any) -> Work:
    """As the operators of the same name."""
    return _transform(REAL if "onesided" in named else COMPLEX, operand, dim)


@formula("prims::fft_c2r")
def primitive_to_real(operand: Operand, *, dim: Any, outputs: Any, **_named: Any) -> Work:
    """As the operator of the same name."""
    return _transform(REAL, next(tensors(outputs)), dim)
