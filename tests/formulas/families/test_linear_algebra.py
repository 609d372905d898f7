import pytest
import torch
from tests.support.torch_versions import needs_operator
from tests.support.vector_calls import aten, estimate_of, work_of

N = 6
A = torch.eye(N).expand(2, N, N).contiguous() * 3
TALL = torch.rand(8, 4)


@pytest.mark.parametrize(
    ("call", "each"),
    [
        ((aten.linalg_cholesky_ex.default, A), 6**3 / 3),
        ((aten.linalg_lu_factor_ex.default, A), 2 * 6**3 / 3),
        ((aten._linalg_det.default, A), 2 * 6**3 / 3),
        ((aten.linalg_inv_ex.default, A), 2 * 6**3),
        ((aten.linalg_eig.default, A), 25 * 6**3),
        ((aten._linalg_eigh.default, A), 9 * 6**3),
        ((aten._linalg_eigh.default, A, "L", False), 4 * 6**3 / 3),
        ((aten._linalg_solve_ex.default, A, torch.ones(2, 6, 5)), 2 * 6**3 / 3 + 2 * 36 * 5),
        ((aten._linalg_solve_ex.default, A, torch.ones(2, 6)), 2 * 6**3 / 3 + 2 * 36),
    ],
)
def test_square_matrices_by_the_batch(call, each):
    assert estimate_of(*call) == round(2 * each)


def test_tall_matrices():
    m, n = 8, 4
    factor = 2 * m * n**2 - 2 * n**3 / 3
    assert estimate_of(aten.geqrf.default, TALL) == round(factor)
    assert estimate_of(aten.linalg_qr.default, TALL) == round(2 * factor)
    assert estimate_of(aten.linalg_qr.default, TALL, "r") == round(factor)
    assert estimate_of(aten.linalg_qr.default, TALL.T) == round(2 * factor)
    assert estimate_of(aten._linalg_svd.default, TALL) == 14 * m * n**2 + 8 * n**3
    values = round(4 * m * n**2 - 4 * n**3 / 3)
    assert estimate_of(aten._linalg_svd.default, TALL, False, False) == values


def test_solving_a_triangle_is_a_square_per_side():
    triangle = torch.eye(6)
    call = aten.linalg_solve_triangular.default
    assert estimate_of(call, triangle, torch.ones(6, 5), upper=True) == 36 * 5
    assert estimate_of(call, triangle, torch.ones(5, 6), upper=True, left=False) == 36 * 5


def test_complex_elements_take_four_times_the_work():
    real = estimate_of(aten.linalg_inv_ex.default, A)
    assert estimate_of(aten.linalg_inv_ex.default, A.to(torch.complex64)) == 4 * real


def test_no_factorisation_is_a_product():
    assert work_of(aten.linalg_inv_ex.default, A).matmul == 0


def test_applying_and_forming_orthogonal_factors():
    a, tau = aten.geqrf(TALL)
    m, n, k = 8, 4, 4
    forming = round(4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3)
    assert estimate_of(aten.linalg_householder_product.default, a, tau) == forming
    # Onto an 8 × 3 matrix from the left, onto a 3 × 8 from the right.
    left = 4 * 8 * 3 * 4 - 2 * 3 * 16
    assert estimate_of(aten.ormqr.default, a, tau, torch.ones(8, 3)) == left
    assert estimate_of(aten.ormqr.default, a, tau, torch.ones(3, 8), False) == left
    complete = round(2 * m * n**2 - 2 * n**3 / 3 + 4 * m**2 * n - 4 * m * n**2 + 4 * n**3 / 3)
    assert estimate_of(aten.linalg_qr.default, TALL, "complete") == complete
    every = 4 * m**2 * n + 8 * m * n**2 + 9 * n**3
    assert estimate_of(aten._linalg_svd.default, TALL, True) == every
    assert estimate_of(aten.linalg_pinv.atol_rtol_tensor, TALL) == 16 * m * n**2 + 8 * n**3


def test_solving_with_a_factorisation():
    lu, pivots, _ = aten.linalg_lu_factor_ex(torch.eye(6))
    sides = torch.ones(6, 5)
    assert estimate_of(aten.linalg_lu_solve.default, lu, pivots, sides) == 2 * 36 * 5
    assert estimate_of(aten.cholesky_solve.default, sides, torch.eye(6)) == 2 * 36 * 5
    assert estimate_of(aten.triangular_solve.default, sides, torch.eye(6)) == 36 * 5
    ld, pivots, _ = aten.linalg_ldl_factor_ex(torch.eye(6))
    assert estimate_of(aten.linalg_ldl_solve.default, ld, pivots, sides) == 2 * 36 * 5
    assert estimate_of(aten.cholesky_inverse.default, torch.eye(6)) == 144
    m, n, k = 8, 4, 3
    least = 2 * m * n**2 - 2 * n**3 / 3 + 4 * m * n * k - 2 * k * n**2 + n**2 * k
    assert estimate_of(aten.linalg_lstsq.default, TALL, torch.ones(8, 3)) == round(least)
    one = 2 * m * n**2 - 2 * n**3 / 3 + 4 * m * n - 2 * n**2 + n**2
    batches = (TALL.expand(2, 8, 4).contiguous(), torch.ones(2, 8))
    assert estimate_of(aten.linalg_lstsq.default, *batches) == round(2 * one)


def test_matrix_functions():
    assert estimate_of(aten.linalg_matrix_exp.default, torch.eye(6)) == 10 * 216
    assert estimate_of(aten._linalg_eigvals.default, torch.eye(6)) == 10 * 216
    matrices, coefficients = torch.ones(3, 6, 6), torch.ones(2, 3)
    combination = aten._compute_linear_combination.default
    assert work_of(combination, matrices, coefficients).matmul == 2 * (2 * 3 * 36)


@needs_operator("aten::linalg_polar")
def test_polar_factors_and_square_roots_of_matrices():
    assert estimate_of(aten.linalg_polar.default, TALL) == 16 * 8 * 4**2 + 10 * 4**3
    assert estimate_of(aten.linalg_matrix_sqrth.default, A) == 2 * 11 * 6**3
