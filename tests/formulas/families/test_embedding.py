import torch
from tests.support.vector_calls import aten, estimate_of, vector_of

WEIGHT = torch.ones(10, 8)
INDICES = torch.tensor([1, 1, 3, 4, 9])


def test_looking_up_is_free_and_its_gradient_adds():
    assert vector_of(aten.embedding.default, WEIGHT, INDICES) == 0
    gradient = torch.ones(5, 8)
    backward = aten.embedding_dense_backward.default
    assert vector_of(backward, gradient, INDICES, 10, -1, False) == 40


def test_a_bag_adds_its_rows():
    offsets = torch.tensor([0, 3])
    total = (WEIGHT, INDICES, offsets, False, 0)
    assert vector_of(aten._embedding_bag.default, *total) == 40
    assert vector_of(aten._embedding_bag.default, WEIGHT, INDICES, offsets, False, 1) == 40 + 16
    assert vector_of(aten._embedding_bag.default, *total, False, torch.ones(5)) == 80


def test_scattering_is_free_unless_it_adds():
    where = torch.zeros(5, 8, dtype=torch.int64)
    source = torch.ones(5, 8)
    assert vector_of(aten.scatter.src, WEIGHT, 0, where, source) == 0
    assert vector_of(aten.scatter.reduce, WEIGHT, 0, where, source, reduce="add") == 40
    assert vector_of(aten.scatter_add_.default, WEIGHT.clone(), 0, where, source) == 40
    assert vector_of(aten.index_add.default, WEIGHT, 0, INDICES, source) == 40
    assert vector_of(aten.index_put.default, WEIGHT, [INDICES], source) == 0
    assert vector_of(aten.index_put_.default, WEIGHT.clone(), [INDICES], source, True) == 40


def test_gradients_of_a_bag():
    offsets = torch.tensor([0, 3])
    dense = aten._embedding_bag_dense_backward.default
    for weights, each in ((None, 1), (torch.ones(5), 2)):
        forward = (WEIGHT, INDICES, offsets, False, 0, False, weights)
        _, offset2bag, bag_size, maximum = aten._embedding_bag(*forward)
        offset2bag = torch.tensor([0, 0, 0, 1, 1])
        call = (torch.ones(2, 8), INDICES, offset2bag, bag_size, maximum, 10, False, 0, weights)
        assert vector_of(dense, *call) == 40 * each
    samples = aten._embedding_bag_per_sample_weights_backward.default
    call = (torch.ones(2, 8), WEIGHT, INDICES, offsets, offset2bag, 0)
    assert vector_of(samples, *call) == 80


def test_renormalising_rows_is_an_estimate():
    assert estimate_of(aten.embedding_renorm_.default, WEIGHT.clone(), INDICES, 1.0, 2.0) == 120
