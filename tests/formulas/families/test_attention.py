import pytest
import torch
from tests.support.product_calls import described, work
from tests.support.vector_calls import work_of
from torch.utils.flop_counter import flop_registry

from torchgauge.formulas.families.attention import SOFTMAX, SOFTMAX_BACKWARD
from torchgauge.formulas.registry import names

B, H, S, D = 2, 8, 16, 64
SCORES = B * H * S * S
FORWARD = 2 * SCORES * (D + D)
EXACT = FORWARD * (S + 1) // (2 * S)  # S·(S + 1)/2 of S·S
SQUARE = sorted(one for one in names() if one.startswith("aten::_scaled_dot_product"))
HEADS_LAST = sorted(
    f"aten::_{kind}_attention_{way}"
    for kind in ("flash", "efficient")
    for way in ("forward", "backward")
)


def call(name, query, key, causal=False, ends=None):
    """Arguments by the names of torch's schema: what is not given is nothing."""
    given = {"query": query, "key": key, "value": key, "is_causal": causal}
    given |= {"q": query, "k": key, "v": key, "custom_mask_type": int(causal)}
    given |= dict.fromkeys(("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k"), ends)
    schema = getattr(torch.ops.aten, name.removeprefix("aten::")).default._schema
    places = [one.name for one in schema.arguments if not one.kwarg_only]
    return work(name, *map(given.get, places))


@pytest.mark.parametrize("name", SQUARE)
def test_two_products_and_a_softmax_and_twice_the_products_backward(name):
    q = described(B, H, S, D)
    backward = name.endswith("backward")
    found = call(name, q, q)
    per_score = SOFTMAX_BACKWARD if backward else SOFTMAX
    assert found == ((1 + backward) * FORWARD, per_score * SCORES, 0, None, False)


@pytest.mark.parametrize("name", [one for one in SQUARE if not one.endswith("for_mps")])
def test_causal_attention_is_its_triangle_where_it_is_square(name):
    q, fewer = described(B, H, S, D), described(B, H, S // 2, D)
    times = 1 + name.endswith("backward")
    found = call(name, q, q, causal=True)
    assert (found.matmul, found.causal) == (times * FORWARD, times * EXACT)
    found = call(name, fewer, q, causal=True)
    assert (found.matmul, found.causal) == (times * FORWARD // 2, None)


@pytest.mark.parametrize("name", HEADS_LAST)
def test_with_the_heads_behind_the_sequence(name):
    q = described(B, S, H, D)
    times = 1 + name.endswith("backward")
    found = call(name, q, q)
    assert (found.matmul, found.causal) == (times * FORWARD, None)
    assert call(name, q, q, causal=True).causal == times * EXACT


@pytest.mark.parametrize("name", [*HEADS_LAST, "aten::_cudnn_attention_forward"])
def test_sequences_of_several_lengths_meet_their_own_keys(name):
    ends = torch.tensor([0, 3, 8])
    tokens = (1, 8, H, D) if "efficient" in name else (8, H, D)
    q = described(*tokens)
    times = 1 + name.endswith("backward")
    found = call(name, q, q, causal=True, ends=ends)
    assert found.matmul == times * 2 * H * (3 * 3 + 5 * 5) * 2 * D
    assert found.causal == times * 2 * H * (6 + 15) * 2 * D
    # Where the ends have no values, the lengths are unknown.
    assert call(name, q, q, ends=ends.to("meta")) is None
    assert call(name, q, q, ends=described(3, dtype="int32")) is None


def test_sequences_with_keys_of_other_lengths_have_no_triangle():
    q, k = described(8, H, D), described(9, H, D)
    ends, key_ends = torch.tensor([0, 3, 8]), torch.tensor([0, 4, 9])
    call = (q, k, k, ends, key_ends, 5, 5, 0.0, True, False)
    found = work("aten::_flash_attention_forward", *call)
    assert found.matmul == 2 * H * (3 * 4 + 5 * 5) * 2 * D
    assert found.causal is None


def test_keys_in_pages_are_unknown():
    name, q = "aten::_flash_attention_forward", described(B, S, H, D)
    call = (q, q, q, None, None, S, S, 0.0, False, False)
    assert work(name, *call).matmul == FORWARD
    assert work(name, *call, block_table=described(B, 4, dtype="int32")) is None
    assert work("aten::_flash_attention_forward_no_dropout_inplace", q, *call).matmul == FORWARD


def test_grouped_keys_serve_every_query_head():
    q, k = described(1, 8, 16, 64), described(1, 2, 16, 64)
    assert call("aten::_scaled_dot_product_flash_attention", q, k).matmul == 2 * 262_144


def test_values_may_be_of_another_width():
    q, v = described(1, 2, 3, 4), described(1, 2, 5, 6)
    found = work("aten::_scaled_dot_product_flash_attention", q, described(1, 2, 5, 4), v)
    assert found.matmul == 2 * 2 * 3 * 5 * (4 + 6)


def test_a_nested_batch_by_its_parts():
    q = torch.nested.nested_tensor([torch.rand(H, 3, D), torch.rand(H, 5, D)])
    for kind in ("flash_attention", "attention_math"):
        found = call(f"aten::_scaled_dot_product_{kind}", q, q, causal=True)
        assert found.matmul == 2 * H * (9 + 25) * 2 * D
        assert found.causal == 2 * H * (6 + 15) * 2 * D


def test_on_the_cpu_as_torch_calls_it():
    q, k = torch.rand(1, 8, 16, 64), torch.rand(1, 8, 16, 64)
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    found = work_of(operator, q, k, k, 0.0, True)
    assert (found.matmul, found.causal) == (2 * 262_144, 2 * 8 * 136 * 128)
    out, statistics = operator(q, k, k, 0.0, True)
    back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    found = work_of(back, out, q, k, k, out, statistics, 0.0, True)
    assert (found.matmul, found.causal) == (4 * 262_144, 4 * 8 * 136 * 128)


def test_torch_counts_the_same_forward_and_a_fifth_product_backward():
    q = torch.empty(B, H, S, D, device="meta")
    torchs = flop_registry[torch.ops.aten._scaled_dot_product_flash_attention]
    assert call("aten::_scaled_dot_product_flash_attention", q, q).matmul == torchs(q, q, q)
    name = "_scaled_dot_product_flash_attention_backward"
    theirs = flop_registry[getattr(torch.ops.aten, name)](q, q, q, q)
    assert call(f"aten::{name}", q, q).matmul * 5 == theirs * 4
