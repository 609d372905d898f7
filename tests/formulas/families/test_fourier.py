import torch
from tests.support.vector_calls import aten, estimate_of

Z = torch.ones(3, 8, 16, dtype=torch.complex64)


def test_a_complex_transform_is_five_n_log_n():
    assert estimate_of(aten._fft_c2c.default, Z, [2], 0, True) == 3 * 8 * (5 * 16 * 4)
    # Two dimensions: transforms of 8·16 = 128 points, log2 128 = 7.
    assert estimate_of(aten._fft_c2c.default, Z, [1, 2], 0, True) == 3 * (5 * 128 * 7)


def test_a_real_side_halves_it_and_counts_the_full_length():
    real = torch.ones(3, 16)
    assert estimate_of(aten._fft_r2c.default, real, [1], 0, True) == 3 * (5 * 16 * 4) // 2
    half = torch.ones(3, 9, dtype=torch.complex64)
    assert estimate_of(aten._fft_c2r.default, half, [1], 0, 16) == 3 * (5 * 16 * 4) // 2
