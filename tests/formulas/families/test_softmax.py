import torch
from tests.support.vector_calls import aten, vector_of

X = torch.ones(4, 10)


def test_softmax_is_five_per_element_and_four_backward():
    assert vector_of(aten._softmax.default, X, 1, False) == 200
    assert vector_of(aten._log_softmax.default, X, 1, False) == 200
    assert vector_of(aten._softmax_backward_data.default, X, X, 1, torch.float32) == 160
    assert vector_of(aten._log_softmax_backward_data.default, X, X, 1, torch.float32) == 160


def test_logsumexp_is_four_per_element_and_not_a_plain_reduction():
    assert vector_of(aten.logsumexp.default, X, [1]) == 160
    assert vector_of(aten.logcumsumexp.default, X, 1) == 160


def test_a_sparse_softmax_counts_specified_elements():
    sparse = torch.eye(4).to_sparse()
    assert vector_of(torch.ops.aten._sparse_softmax.default, sparse, 1, False) == 4 * 5


def test_out_forms_count_as_their_base():
    assert vector_of(aten._softmax.out, X, 1, False, out=torch.empty(4, 10)) == 200
