import pytest
import torch
from tests.support.vector_calls import aten, vector_of

X = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)


def test_a_window_costs_its_size():
    # 2·3·4·4 outputs of 2·2 elements; 2·3·8·8 outputs of 3·3 with padding.
    assert vector_of(aten.avg_pool2d.default, X, [2, 2], [2, 2]) == 96 * 4
    assert vector_of(aten.avg_pool2d.default, X, [2], [2]) == 96 * 4
    assert vector_of(aten.max_pool2d_with_indices.default, X, [3, 3], [1, 1], [1, 1]) == 384 * 9
    assert vector_of(aten.avg_pool3d.default, X, [2], [2]) == 2 * 1 * 4 * 4 * 8


def test_backward_of_an_average_spreads_and_of_a_maximum_adds_once():
    pooled = torch.ones(2, 3, 4, 4)
    back = (pooled, X, [2, 2], [2, 2], [0, 0], False, True, None)
    assert vector_of(aten.avg_pool2d_backward.default, *back) == 96 * 4
    _, indices = aten.max_pool2d_with_indices(X, [2, 2], [2, 2])
    back = (pooled, X, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
    assert vector_of(aten.max_pool2d_with_indices_backward.default, *back) == 96


@pytest.mark.parametrize(
    ("output", "windows"),
    # 8 into 4: four windows of 2. 8 into 3: 0–3, 2–6, 5–8, of 3, 4 and 3. 8 into 1: all.
    [(4, 8), (3, 10), (1, 8)],
)
def test_adaptive_windows_overlap_where_sizes_do_not_divide(output, windows):
    count = 2 * 3 * windows * windows
    assert vector_of(aten._adaptive_avg_pool2d.default, X, [output, output]) == count
    pooled = torch.ones(2, 3, output, output)
    assert vector_of(aten._adaptive_avg_pool2d_backward.default, pooled, X) == count


def test_one_and_three_dimensions():
    line, cube = torch.ones(2, 3, 8), torch.arange(2 * 8 * 8 * 8.0).reshape(1, 2, 8, 8, 8)
    # The plain forms are composites; those that write to a given tensor arrive whole.
    assert vector_of(aten.avg_pool1d.out, line, [2], [2], out=torch.empty(0)) == 24 * 2
    assert vector_of(aten.max_pool3d_with_indices.default, cube, [2], [2]) == 2 * 64 * 8
    pooled = torch.ones(1, 2, 4, 4, 4)
    back = (pooled, cube, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None)
    assert vector_of(aten.avg_pool3d_backward.default, *back) == 2 * 64 * 8
    assert vector_of(aten.adaptive_avg_pool1d.out, line, [3], out=torch.empty(0)) == 6 * 10
    assert vector_of(aten._adaptive_avg_pool3d.default, cube, [3, 4, 1]) == 2 * 10 * 8 * 8
    coarse = torch.ones(1, 2, 3, 4, 1)
    assert vector_of(aten._adaptive_avg_pool3d_backward.default, coarse, cube) == 2 * 10 * 8 * 8
    assert vector_of(aten.adaptive_max_pool2d.default, X, [3, 3]) == 6 * 100
    assert vector_of(aten.adaptive_max_pool3d.default, cube, [4, 4, 4]) == 2 * 8 * 8 * 8
