"""Decompositions, solvers and Fourier transforms."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgauge.formulas.operand import Operand, Work, elements, is_complex, product, tensors
from torchgauge.formulas.registry import formula


def _estimate(per_matrix: float, operand: Operand) -> Work:
    batch = math.prod(operand.shape[:-2])
    rate = 4 if is_complex(operand) else 1
    return Work(vector=round(rate * batch * per_matrix), estimated=True)


def _sizes(operand: Operand) -> tuple[int, int]:
    """Return the longer and the shorter side."""
    *_, rows, columns = operand.shape
    return max(rows, columns), min(rows, columns)


def _register_square(cost: Callable[[float], float], *names: str) -> None:
    @formula(*(f"aten::{name}" for name in names))
    def square(operand: Operand, *_args: Any, **_named: Any) -> Work:
        return _estimate(cost(operand.shape[-1]), operand)


_register_square(lambda n: n**3 / 3, "cholesky", "linalg_cholesky_ex", "linalg_ldl_factor_ex")
_register_square(lambda n: 2 * n**3 / 3, "cholesky_inverse", "_linalg_det", "_linalg_slogdet")
_register_square(lambda n: 2 * n**3, "linalg_inv_ex")
_register_square(lambda n: 25 * n**3, "linalg_eig")
_register_square(lambda n: 10 * n**3, "linalg_eigvals", "_linalg_eigvals")
# Five products for a polynomial of degree 18 (Bader, Blanes and Casas, 2019), without squarings.
_register_square(lambda n: 10 * n**3, "linalg_matrix_exp")
# Eigenvectors, as below, and a product.
_register_square(lambda n: 11 * n**3, "linalg_matrix_sqrth")


@formula("aten::_linalg_eigh")
def eigh(operand: Operand, uplo: str = "L", compute_v: bool = True) -> Work:
    """9·n³ with eigenvectors, 4/3·n³ without."""
    n = operand.shape[-1]
    return _estimate(9 * n**3 if compute_v else 4 * n**3 / 3, operand)


@formula("aten::_linalg_svd", "prims::svd")
def svd(
    operand: Operand, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None
) -> Work:
    """Values 4mn² − 4n³/3, with vectors 14mn² + 8n³, with all of both 4m²n + 8mn² + 9n³; m ≥ n."""
    m, n = _sizes(operand)
    if not compute_uv:
        return _estimate(4 * m * n**2 - 4 * n**3 / 3, operand)
    if full_matrices:
        return _estimate(4 * m**2 * n + 8 * m * n**2 + 9 * n**3, operand)
    return _estimate(14 * m * n**2 + 8 * n**3, operand)


@formula("aten::linalg_pinv")
def pinv(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """The thin singular value decomposition, and a product of 2mn²."""
    m, n = _sizes(operand)
    return _estimate(16 * m * n**2 + 8 * n**3, operand)


@formula("aten::linalg_polar")
def polar(operand: Operand) -> Work:
    """The thin singular value decomposition, and products of 2mn² and 2n³; m ≥ n."""
    m, n = _sizes(operand)
    return _estimate(16 * m * n**2 + 10 * n**3, operand)


def _qr(m: float, n: float) -> float:
    return 2 * m * n**2 - 2 * n**3 / 3


@formula("aten::geqrf")
def geqrf(operand: Operand) -> Work:
    """2mn² − 2n³/3 for m ≥ n."""
    return _estimate(_qr(*_sizes(operand)), operand)


@formula("aten::linalg_qr")
def qr(operand: Operand, mode: str = "reduced") -> Work:
    """2mn² − 2n³/3 for R, as much again for the reduced Q; 4m²n − 4mn² + 4n³/3 for all of Q."""
    m, n = _sizes(operand)
    orthogonal = {"r": 0.0, "complete": 4 * m**2 * n - 4 * m * n**2 + 4 * n**3 / 3}
    return _estimate(_qr(m, n) + orthogonal.get(mode, _qr(m, n)), operand)


@formula("aten::linalg_householder_product")
def householder_product(reflectors: Operand, tau: Operand) -> Work:
    """4mnk − 2(m + n)k² + 4k³/3 for k reflectors."""
    *_, m, n = reflectors.shape
    k = tau.shape[-1]
    return _estimate(4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3, reflectors)


@formula("aten::ormqr")
def ormqr(
    reflectors: Operand, tau: Operand, other: Operand, left: bool = True, *_args: Any
) -> Work:
    """4mnk − 2nk² from the left, 4mnk − 2mk² from the right, on an m × n matrix."""
    *_, m, n = other.shape
    k = tau.shape[-1]
    return _estimate(4 * m * n * k - 2 * (n if left else m) * k**2, other)


def _lu(m: float, n: float) -> float:
    """The cost of an m × n factorisation with m ≥ n."""
    return m * n**2 - n**3 / 3


@formula("aten::linalg_lu", "aten::linalg_lu_factor_ex")
def lu(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """mn² − n³/3 for m ≥ n: 2/3·n³ where square."""
    return _estimate(_lu(*_sizes(operand)), operand)


def _columns(right: Operand, from_left: bool = True) -> int:
    """Return the number of right-hand sides: B is n × k, or k × n from the right."""
    return int(right.shape[-1] if from_left else right.shape[-2])


@formula("aten::_linalg_solve_ex")
def solve(matrix: Operand, right: Operand, *, left: bool = True, **_named: Any) -> Work:
    """2/3·n³ for the factorisation and 2n² per right-hand side."""
    n = matrix.shape[-1]
    vectors = len(right.shape) < len(matrix.shape)  # a batch of vectors, one each
    k = 1 if vectors else _columns(right, left)
    return _estimate(_lu(n, n) + 2 * n**2 * k, matrix)


@formula("aten::linalg_lu_solve", "aten::linalg_ldl_solve")
def lu_solve(lu: Operand, pivots: Any, right: Operand, *, left: bool = True, **_named: Any) -> Work:
    """2n² per right-hand side."""
    n = lu.shape[-1]
    return _estimate(2 * n**2 * _columns(right, left), right)


@formula("aten::cholesky_solve", "aten::_cholesky_solve_helper")
def cholesky_solve(right: Operand, factor: Operand, upper: bool = False) -> Work:
    """2n² per right-hand side."""
    return lu_solve(factor, None, right)


@formula("aten::linalg_solve_triangular")
def solve_triangular(matrix: Operand, right: Operand, *, left: bool = True, **_named: Any) -> Work:
    """n² per right-hand side."""
    n = matrix.shape[-1]
    return _estimate(n**2 * _columns(right, left), right)


@formula("aten::triangular_solve")
def triangular_solve(right: Operand, matrix: Operand, *_args: Any) -> Work:
    """n² per right-hand side."""
    return solve_triangular(matrix, right)


@formula("aten::linalg_lstsq")
def lstsq(matrix: Operand, right: Operand, *_args: Any, **_named: Any) -> Work:
    """By QR: its factorisation, Qᵀ times the k right-hand sides, and a triangular solution."""
    m, n = _sizes(matrix)
    k = _columns(right) if len(right.shape) == len(matrix.shape) else 1
    return _estimate(_qr(m, n) + 4 * m * n * k - 2 * k * n**2 + n**2 * k, matrix)


@formula("aten::_compute_linear_combination")
def linear_combination(operand: Operand, coefficients: Operand) -> Work:
    """A product of the (m, n) coefficients with n matrices."""
    return product(math.prod(operand.shape) * coefficients.shape[0], operand)


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
