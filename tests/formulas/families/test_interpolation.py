import pytest
import torch
from tests.support.torch_versions import needs_operator
from tests.support.vector_calls import aten, estimate_of, vector_of, work_of

from torchgauge.formulas.registry import find

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


@pytest.mark.parametrize(
    ("name", "taps"),
    [
        ("bilinear2d", 2),
        ("bicubic2d", 4),
        pytest.param("lanczos2d", 6, marks=needs_operator("aten::_upsample_lanczos2d_aa")),
    ],
)
def test_enlarging_does_not_widen_an_antialiasing_filter(name, taps):
    small = torch.ones(1, 1, 4, 4)
    resize = getattr(aten, f"_upsample_{name}_aa").default
    # Along the width 4·8 outputs, then along the height 8·8.
    assert estimate_of(resize, small, [8, 8], False) == 2 * taps * (4 * 8 + 8 * 8)


def test_the_gradient_of_an_antialiasing_filter():
    back = (torch.ones(1, 1, 8, 8), [8, 8], [1, 1, 4, 4], False)
    assert estimate_of(aten._upsample_bilinear2d_aa_backward.default, *back) == 2 * 2 * 96


def test_three_dimensions_have_eight_neighbours():
    cube, grid = torch.ones(1, 2, 4, 4, 4), torch.zeros(1, 3, 3, 3, 3)
    assert vector_of(aten.upsample_trilinear3d.default, cube, [8, 8, 8], False) == 2 * 512 * 16
    assert vector_of(aten.grid_sampler_3d.default, cube, grid, 0, 0, False) == 2 * 27 * 16


def test_the_gradient_of_the_nearest_neighbour_adds_once():
    grid = torch.zeros(2, 5, 6, 2)
    back = (torch.ones(2, 3, 5, 6), X, grid, 1, 0, False, [True, True])
    assert vector_of(aten.grid_sampler_2d_backward.default, *back) == 2 * 5 * 6 * 3


@pytest.mark.parametrize("kind", ["reflection_pad", "replication_pad"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_gradient_of_padding_adds_every_element(kind, dimensions):
    padded = torch.ones(2, 3, *(6,) * dimensions)
    call = (padded, torch.ones(2, 3, *(4,) * dimensions), [1, 1] * dimensions)
    backward = getattr(aten, f"{kind}{dimensions}d_backward").default
    assert vector_of(backward, *call) == 6 * 6**dimensions


@pytest.mark.parametrize("kind", ["upsample_nearest", "_upsample_nearest_exact"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_gradient_of_a_nearest_resize_adds_every_element(kind, dimensions):
    large, small = [2, 3, *(8,) * dimensions], [2, 3, *(4,) * dimensions]
    call = (torch.ones(large), large[2:], small)
    backward = getattr(aten, f"{kind}{dimensions}d_backward").default
    assert vector_of(backward, *call) == 6 * 8**dimensions


def test_cudnn_forms_are_bilinear_with_both_gradients():
    grid = torch.zeros(2, 5, 6, 2)
    sampler = find("aten::cudnn_grid_sampler")[0]
    assert sampler(X, grid).vector == 180 * 8
    backward = find("aten::cudnn_grid_sampler_backward")[0]
    assert backward(X, grid, torch.ones(2, 3, 5, 6)).vector == 180 * 24
    affine = find("aten::cudnn_affine_grid_generator_backward")[0]
    assert affine(torch.ones(2, 5, 6, 2), 2, 3, 5, 6).matmul == 2 * (2 * 5 * 6 * 2 * 3)
