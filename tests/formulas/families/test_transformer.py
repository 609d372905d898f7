import torch
from tests.support.product_calls import described, work
from tests.support.vector_calls import aten, work_of

N, S, E, H, F = 2, 5, 16, 4, 32
PROJECTIONS = 4 * N * S * E * E
SCORES = N * S * S  # per head


def test_attention_in_one_operator():
    x = described(N, S, E)
    for name in ("aten::_native_multi_head_attention", "aten::_triton_multi_head_attention"):
        found = work(name, x, x, x, E, H)
        assert found == (2 * (PROJECTIONS + 2 * SCORES * E), 6 * H * SCORES, 0, None, False)


def test_keys_of_another_length():
    query, key = described(1, 3, E), described(1, 7, E)
    found = work("aten::_native_multi_head_attention", query, key, key, E, H)
    assert found.matmul == 2 * ((2 * 3 + 2 * 7) * E * E + 2 * 3 * 7 * E)


def layer(x):
    weights = [torch.rand(3 * E, E), torch.rand(3 * E), torch.rand(E, E), torch.rand(E)]
    norms = [torch.rand(E) for _ in range(4)]
    wide = [torch.rand(F, E), torch.rand(F), torch.rand(E, F), torch.rand(E)]
    options = (False, False, 1e-5)
    call = (x, E, H, *weights, *options, *norms, *wide)
    return work_of(aten._transformer_encoder_layer_fwd.default, *call)


def test_an_encoder_layer_in_one_operator():
    found = layer(torch.rand(N, S, E))
    assert found.matmul == 2 * (PROJECTIONS + 2 * SCORES * E + 2 * N * S * E * F)
    # Softmax, two norms at eight per element, two sums, and the activation.
    assert found.vector == 6 * H * SCORES + N * S * (2 * 8 * E + 2 * E + F)


def test_a_nested_batch_has_no_padding():
    found = layer(torch.nested.nested_tensor([torch.rand(3, E), torch.rand(5, E)]))
    assert found.matmul == 2 * (4 * 8 * E * E + 2 * (9 + 25) * E + 2 * 8 * E * F)
