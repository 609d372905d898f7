import torch
from tests.support.vector_calls import aten, vector_of


def test_pairs_of_rows():
    rows = torch.rand(5, 7)
    assert vector_of(aten._pdist_forward.default, rows) == 10 * 7 * 3
    distances = aten._pdist_forward(rows)
    call = (torch.ones(10), rows, 2.0, distances)
    assert vector_of(aten._pdist_backward.default, *call) == 10 * 7 * 5
