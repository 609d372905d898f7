import pytest
import torch
from tests.support.vector_calls import aten, vector_of

from torchgauge.formulas.registry import find

X = torch.ones(2, 3, 4)  # 24 elements
C = torch.ones(3)
PIECES = [
    "batch_norm_stats",
    "batch_norm_elemt",
    "batch_norm_gather_stats",
    "batch_norm_backward_reduce",
    "batch_norm_backward_elemt",
]


@pytest.mark.parametrize(
    ("parameters", "each"), [((None, None), 6), ((True, None), 7), ((1, 1), 8)]
)
def test_layer_norm_is_six_per_element_and_one_per_parameter(parameters, each):
    weight, bias = (None if one is None else torch.ones(4) for one in parameters)
    assert vector_of(aten.native_layer_norm.default, X, [4], weight, bias, 1e-5) == 24 * each


@pytest.mark.parametrize(
    ("mask", "each"),
    [
        ((True, True, True), 2 + 8 + 2 + 1),
        ((True, False, False), 2 + 8),
        ((False, True, True), 2 + 2 + 1),
        ((False, False, True), 1),
    ],
)
def test_layer_norm_backward_counts_the_gradients_asked_for(mask, each):
    weight = torch.ones(4)
    _, mean, rstd = aten.native_layer_norm(X, [4], weight, weight, 1e-5)
    call = (X, X, [4], mean, rstd, weight, weight, mask)
    assert vector_of(aten.native_layer_norm_backward.default, *call) == 24 * each


def test_batch_norm_needs_statistics_only_in_training():
    running = (torch.zeros(3), torch.ones(3))
    training = (X, C, C, *running, True, 0.1, 1e-5)
    evaluation = (X, C, C, *running, False, 0.1, 1e-5)
    assert vector_of(aten.native_batch_norm.default, *training) == 24 * 8
    assert vector_of(aten.native_batch_norm.default, *evaluation) == 24 * 4
    assert vector_of(aten._native_batch_norm_legit.default, *training) == 24 * 8
    legit = (X, None, None, *running, False, 0.1, 1e-5)
    assert vector_of(aten._native_batch_norm_legit.default, *legit) == 24 * 2
    instance = (X, None, None, True, 0.1, 1e-5)
    assert vector_of(aten._native_batch_norm_legit.no_stats, *instance) == 24 * 6


def test_batch_norm_backward_with_frozen_statistics_scales_the_gradient():
    running = (torch.zeros(3), torch.ones(3))
    _, mean, invstd = aten.native_batch_norm(X, C, C, *running, True, 0.1, 1e-5)
    backward = aten.native_batch_norm_backward.default
    trained = (X, X, C, *running, mean, invstd, True, 1e-5, [True, True, True])
    frozen = (X, X, C, *running, mean, invstd, False, 1e-5, [True, False, False])
    assert vector_of(backward, *trained) == 24 * 13
    assert vector_of(backward, *frozen) == 24 * 1


def test_group_and_rms_norm():
    groups = (X, C, C, 2, 3, 4, 1, 1e-5)
    assert vector_of(aten.native_group_norm.default, *groups) == 24 * 8
    # A composite where there is no kernel for it, so the formula alone.
    fused = find("aten::_fused_rms_norm")[0]
    assert fused(X, [4], torch.ones(4), 1e-5).vector == 24 * 4
    assert fused(X, [4], None, 1e-5).vector == 24 * 3
    backward = find("aten::_fused_rms_norm_backward")[0]
    # Normalised value, weighted gradient, sum of products, gradient; then the weight's.
    call = (X, X, [4], torch.ones(2, 3, 1), torch.ones(4))
    assert backward(*call, [True, True]).vector == 24 * (1 + 1 + 2 + 3 + 2)
    assert backward(*call, [False, True]).vector == 24 * (1 + 2)


def test_group_norm_backward():
    _, mean, rstd = aten.native_group_norm(X, C, C, 2, 3, 4, 1, 1e-5)
    call = (X, X, mean, rstd, C, 2, 3, 4, 1, [True, True, True])
    assert vector_of(aten.native_group_norm_backward.default, *call) == 24 * 13


def test_weight_norm():
    v, g = torch.ones(3, 4), torch.ones(3, 1)
    assert vector_of(aten._weight_norm_interface.default, v, g, 0) == 12 * 3


def test_batch_norm_in_the_pieces_that_devices_share():
    statistics = (torch.zeros(3), torch.ones(3))
    find_ = {name: find(f"aten::{name}")[0] for name in PIECES}
    assert find_["batch_norm_stats"](X, 1e-5).vector == 24 * 4
    assert find_["batch_norm_elemt"](X, C, C, *statistics, 1e-5).vector == 24 * 4
    assert find_["batch_norm_backward_reduce"](X, X, *statistics, C, True, True, True).vector == 96
    counts = (torch.ones(3), torch.ones(3), torch.ones(2))
    assert find_["batch_norm_backward_elemt"](X, X, *statistics, C, *counts).vector == 24 * 5
    gathered = torch.ones(2, 3)
    call = (X, gathered, gathered, *statistics, 0.1, 1e-5, 8)
    assert find_["batch_norm_gather_stats"](*call).vector == 6 * 4


def test_cudnn_counts_all_three_gradients():
    backward = find("aten::cudnn_batch_norm_backward")[0]
    assert backward(X, X, C, None, None, C, C, 1e-5, C).vector == 24 * 13
    reserved = find("aten::batch_norm_backward")[0]
    call = (X, X, C, None, None, C, C, True, 1e-5, [True, True, True], C)
    assert reserved(*call).vector == 24 * 13


def test_weight_norm_backward_and_renorm():
    v, g = torch.ones(3, 4), torch.ones(3, 1)
    _, norms = aten._weight_norm_interface(v, g, 0)
    backward = aten._weight_norm_interface_backward.default
    assert vector_of(backward, v, v, g, norms, 0) == 12 * 5
    assert vector_of(aten.renorm.default, v, 2, 0, 1.0) == 12 * 3
