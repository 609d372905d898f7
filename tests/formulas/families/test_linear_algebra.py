import pytest
import torch
from tests.formulas.vector_calls import aten, estimate_of, work_of

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
