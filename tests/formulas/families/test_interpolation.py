import torch
from tests.formulas.vector_calls import aten, estimate_of, vector_of, work_of

X = torch.ones(2, 3, 4, 4)
OUTPUT = 2 * 3 * 8 * 8


def test_each_neighbour_is_a_multiplication_and_an_addition():
    assert vector_of(aten.upsample_nearest2d.default, X, [8, 8]) == 0
    assert vector_of(aten.upsample_bilinear2d.default, X, [8, 8], False) == OUTPUT * 8
    assert vector_of(aten.upsample_bicubic2d.default, X, [8, 8], False) == OUTPUT * 32
    line = torch.ones(2, 3, 4)
    assert vector_of(aten.upsample_linear1d.default, line, [8], False) == 2 * 3 * 8 * 4


def test_backward_spreads_each_gradient():
    gradient = torch.ones(2, 3, 8, 8)
    sizes = ([8, 8], [2, 3, 4, 4])
    assert (
        vector_of(aten.upsample_bilinear2d_backward.default, gradient, *sizes, False) == OUTPUT * 8
    )
    assert vector_of(aten.upsample_nearest2d_backward.default, gradient, *sizes) == OUTPUT


def test_antialiasing_widens_the_filter_by_the_scale():
    big = torch.ones(1, 1, 8, 8)
    # 8 → 4: 2·2 taps. Along the width 8·4 outputs, then along the height 4·4.
    expected = 2 * 4 * (8 * 4 + 4 * 4)
    assert estimate_of(aten._upsample_bilinear2d_aa.default, big, [4, 4], False) == expected


def test_grid_sampling():
    grid = torch.zeros(2, 5, 6, 2)
    places = 2 * 5 * 6 * 3
    assert vector_of(aten.grid_sampler_2d.default, X, grid, 0, 0, False) == places * 8
    assert vector_of(aten.grid_sampler_2d.default, X, grid, 1, 0, False) == 0
    assert vector_of(aten.grid_sampler_2d.default, X, grid, 2, 0, False) == places * 32
    back = (torch.ones(2, 3, 5, 6), X, grid, 0, 0, False)
    call = aten.grid_sampler_2d_backward.default
    assert vector_of(call, *back, [True, False]) == places * 8
    assert vector_of(call, *back, [True, True]) == places * (8 + 2 * 8)


def test_an_affine_grid_is_a_product():
    # Each of 2·5·6 places: 2 coordinates, each a product of 3 terms.
    work = work_of(aten.affine_grid_generator.default, torch.ones(2, 2, 3), [2, 3, 5, 6], False)
    assert work.matmul == 2 * (2 * 5 * 6 * 2 * 3)


def test_folding_adds_every_column():
    columns = torch.ones(1, 4, 9)
    call = (columns, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])
    assert vector_of(aten.col2im.default, *call) == 36
