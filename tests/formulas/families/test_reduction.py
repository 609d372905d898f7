import math

import torch
from tests.support.vector_calls import aten, estimate_of, vector_of, work_of

X = torch.rand(4, 16)


def test_scans_and_pairs_of_reductions():
    assert vector_of(aten.cumsum.default, X, 1) == 64
    assert vector_of(aten.cumprod.default, X, 1) == 64
    assert vector_of(aten.aminmax.default, X) == 128
    assert vector_of(aten.var_mean.correction, X, [1], correction=1) == 128
    assert vector_of(aten.trace.default, X) == 4
    assert vector_of(aten.dist.default, X, X) == 128


def test_orderings_are_estimates():
    assert estimate_of(aten.sort.default, X) == 64 * 4  # log2 16
    assert estimate_of(aten.sort.default, X, 0) == 64 * 2  # log2 4
    assert estimate_of(aten.sort.stable, X, stable=True, dim=0) == 64 * 2
    assert estimate_of(aten.median.default, X) == 128
    # Selecting 8 of 16 in each of 4 rows, then sorting 8 of them.
    assert estimate_of(aten.topk.default, X, 8) == 64 + 4 * 8 * 3
    assert estimate_of(aten.topk.default, X, 8, -1, True, False) == 64
    assert estimate_of(aten._unique2.default, X) == 64 * 6 + 64


def test_searching_is_a_logarithm_per_value():
    boundaries = torch.arange(7.0)
    assert vector_of(aten.searchsorted.Tensor, boundaries, X) == 64 * 3
    assert vector_of(aten.bucketize.Tensor, X, boundaries) == 64 * 3
    assert math.log2(7 + 1) == 3


def test_counting_integers_is_integer_work():
    assert work_of(aten.bincount.default, torch.ones(9, dtype=torch.int64))[:3] == (0, 0, 9)


def test_joining_and_comparing_neighbours():
    values, among = torch.rand(10), torch.rand(6)
    assert estimate_of(aten.isin.Tensor_Tensor, values, among) == 16 * 4
    assert vector_of(aten.unique_consecutive.default, X) == 64
    # Two elements need one comparison in either direction of a sort.
    assert estimate_of(aten.sort.default, torch.rand(5, 2)) == 10


def test_segments_and_histograms():
    data, lengths = torch.rand(6, 2), torch.tensor([2, 4])
    assert vector_of(aten.segment_reduce.default, data, "sum", lengths=lengths) == 12
    output = aten.segment_reduce(data, "sum", lengths=lengths)
    call = (torch.ones(2, 2), output, data, "sum")
    assert vector_of(aten._segment_reduce_backward.default, *call, lengths=lengths) == 12
    assert vector_of(aten.histc.default, X, 4) == 64
    assert vector_of(aten._histogramdd_bin_edges.default, torch.rand(9, 2), [3, 3]) == 36


def test_a_single_number_is_a_row_of_one():
    one = torch.tensor(3.0)
    assert estimate_of(aten.sort.default, one) == 0
    assert estimate_of(aten.topk.default, one, 1) == 1
