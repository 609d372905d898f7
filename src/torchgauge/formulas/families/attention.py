"""Attention: two products, queries with keys and weights with values, and a softmax between.

A causal kernel skips the upper triangle in part; `matmul` counts the whole square, `causal` the
exact triangle, where as many queries as keys are there. Backward there are four products: the
gradients of weights, values, queries and keys. The scores that flash kernels compute once more are
not the model's work. Heads are those of the queries: grouped keys serve several.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.work import Work, product

# Per score: scaled, compared, subtracted, exponentiated, added up, divided.
SOFTMAX = 6
# Per score: the weight again (2), its product with its gradient, the sum, the difference, the
# product, the scale.
SOFTMAX_BACKWARD = 7
CAUSAL_MASKS = (1, 2)  # custom_mask_type: causal from the top left, or from the bottom right


def _attention(
    q: Operand, heads: int, pairs: int, causal: int | None, *, inner: int, backward: bool = False
) -> Work:
    """Return the work of `pairs` (query, key) pairs per head; `inner` is D of keys and values."""
    times = 2 if backward else 1
    whole = product(times * heads * pairs * inner, q)
    triangle = None if causal is None else product(times * heads * causal * inner, q).matmul
    softmax = (SOFTMAX_BACKWARD if backward else SOFTMAX) * heads * pairs
    return whole._replace(causal=triangle, vector=softmax)


def _triangle(queries: int, keys: int, *, causal: bool) -> int | None:
    return queries * (queries + 1) // 2 if causal and queries == keys else None


def _square(q: Operand, k: Operand, v: Operand, *, causal: bool, backward: bool = False) -> Work:
    """[..., heads, queries, D]: the layout of scaled_dot_product_attention."""
    queries, keys = q.shape[-2], k.shape[-2]
    heads = math.prod(q.shape[:-2])
    inner = q.shape[-1] + v.shape[-1]
    triangle = _triangle(queries, keys, causal=causal)
    return _attention(q, heads, queries * keys, triangle, inner=inner, backward=backward)


def _packed(
    q: Operand, k: Operand, v: Operand, ends: Any, key_ends: Any, *, causal: bool,
    backward: bool = False,
) -> Work:  # fmt: skip
    """[batch, sequence, heads, D], or sequences of several lengths one after the other."""
    heads, inner = q.shape[-2], q.shape[-1] + v.shape[-1]
    if ends is None:
        batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
        triangle = _triangle(queries, keys, causal=causal)
        return _attention(
            q, batch * heads, queries * keys, triangle, inner=inner, backward=backward
        )
    lengths = [end - start for start, end in pairwise(ends.tolist())]
    others = [
        end - start
        for start, end in pairwise((key_ends if key_ends is not None else ends).tolist())
    ]
    pairs = sum(a * b for a, b in zip(lengths, others, strict=True))
    exact = causal and lengths == others
    triangle = sum(a * (a + 1) // 2 for a in lengths) if exact else None
    return _attention(q, heads, pairs, triangle, inner=inner, backward=backward)


@formula("aten::_scaled_dot_product_flash_attention")
def flash(
    query: Operand, key: Operand, value: Operand, dropout_p: float = 0.0, is_causal: bool = False,
    *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """[b, h, s, d] for query, key and value."""
    return _square(query, key, value, causal=is_causal)


@formula("aten::_scaled_dot_product_flash_attention_for_cpu")
def flash_for_cpu(
    query: Operand, key: Operand, value: Operand, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Any = None, scale: Any = None,
) -> Work:  # fmt: skip
    """The same with a mask, which saves no work."""
    return _square(query, key, value, causal=is_causal)


@formula(
    "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention"
)
def efficient(
    query: Operand, key: Operand, value: Operand, attn_bias: Any, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """The same with a bias."""
    return _square(query, key, value, causal=is_causal)


@formula("aten::_scaled_dot_product_fused_attention_overrideable")
def overrideable(
    query: Operand, key: Operand, value: Operand, attn_bias: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """The same where a backend brings its own kernel."""
    return _square(query, key, value, causal=is_causal)


@formula("aten::_scaled_dot_product_attention_math_for_mps", "aten::_triton_scaled_dot_attention")
def whole(q: Operand, k: Operand, v: Operand, *args: Any, **kwargs: Any) -> Work:
    """The same, in one kernel without a causal form of its own."""
    return _square(q, k, v, causal=False)


@formula("aten::_scaled_dot_product_flash_attention_backward")
def flash_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    return _square(query, key, value, causal=is_causal, backward=True)


@formula("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_for_cpu_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    dropout_p: float, is_causal: bool, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    return _square(query, key, value, causal=is_causal, backward=True)


@formula("aten::_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, attn_bias: Any, out: Any,
    logsumexp: Any, philox_seed: Any, philox_offset: Any, dropout_p: float, grad_input_mask: Any,
    is_causal: bool = False, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    return _square(query, key, value, causal=is_causal, backward=True)


@formula("aten::_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    philox_seed: Any, philox_offset: Any, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any,
    max_q: int, max_k: int, dropout_p: float, is_causal: bool, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    return _square(query, key, value, causal=is_causal, backward=True)


@formula("aten::_scaled_dot_product_fused_attention_overrideable_backward")
def overrideable_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, attn_bias: Any,
    grad_input_mask: Any, out: Any, logsumexp: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    return _square(query, key, value, causal=is_causal, backward=True)


@formula("aten::_flash_attention_forward")
def flash_forward(
    query: Operand, key: Operand, value: Operand, cum_seq_q: Any, cum_seq_k: Any, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """[b, s, h, d], or [tokens, h, d] with the ends of the sequences."""
    return _packed(query, key, value, cum_seq_q, cum_seq_k, causal=is_causal)


@formula("aten::_flash_attention_backward")
def flash_attention_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    packed = cum_seq_q if len(query.shape) == 3 else None
    return _packed(query, key, value, packed, cum_seq_k, causal=is_causal, backward=True)


@formula("aten::_efficient_attention_forward")
def efficient_forward(
    query: Operand, key: Operand, value: Operand, bias: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: Any, max_seqlen_k: Any, dropout_p: float, custom_mask_type: int,
    *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """[b, s, h, d], or [1, tokens, h, d] with the ends of the sequences."""
    causal = custom_mask_type in CAUSAL_MASKS
    return _packed(query, key, value, cu_seqlens_q, cu_seqlens_k, causal=causal)


@formula("aten::_efficient_attention_backward")
def efficient_attention_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, bias: Any, out: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, logsumexp: Any,
    dropout_p: float, philox_seed: Any, philox_offset: Any, custom_mask_type: int,
    *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    causal = custom_mask_type in CAUSAL_MASKS
    return _packed(query, key, value, cu_seqlens_q, cu_seqlens_k, causal=causal, backward=True)


@formula("aten::_cudnn_attention_forward")
def cudnn_forward(
    query: Operand, key: Operand, value: Operand, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any,
    max_q: int, max_k: int, compute_log_sumexp: bool, dropout_p: float = 0.0,
    is_causal: bool = False, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """[b, h, s, d], or [tokens, h, d] with the ends of the sequences."""
    if cum_seq_q is None:
        return _square(query, key, value, causal=is_causal)
    return _packed(query, key, value, cum_seq_q, cum_seq_k, causal=is_causal)


@formula("aten::_cudnn_attention_backward")
def cudnn_attention_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    philox_seed: Any, philox_offset: Any, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any,
    max_q: int, max_k: int, dropout_p: float, is_causal: bool, **kwargs: Any,
) -> Work:  # fmt: skip
    """Four products."""
    if len(query.shape) == 4:
        return _square(query, key, value, causal=is_causal, backward=True)
    return _packed(query, key, value, cum_seq_q, cum_seq_k, causal=is_causal, backward=True)


def _lengths(operand: Any) -> list[int]:
    """Return the sequences' lengths of [b, s, e], or of a nested tensor of [s, e]."""
    if getattr(operand, "is_nested", False):
        return [int(sizes[0]) for sizes in operand._nested_tensor_size().tolist()]  # noqa: SLF001
    return [operand.shape[1]] * operand.shape[0]


def _heads(query: Any, key: Any, embed_dim: int, num_head: int) -> Work:
    queries, keys = _lengths(query), _lengths(key)
    projected = (2 * sum(queries) + 2 * sum(keys)) * embed_dim * embed_dim
    pairs = sum(a * b for a, b in zip(queries, keys, strict=True))
    work = product(projected + 2 * pairs * embed_dim, query)
    return work._replace(vector=SOFTMAX * num_head * pairs)


@formula("aten::_native_multi_head_attention", "aten::_triton_multi_head_attention")
def multi_head(
    query: Operand, key: Operand, value: Operand, embed_dim: int, num_head: int,
    *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """Projections of query, key, value and output, s·e·e each, and the attention."""
    return _heads(query, key, embed_dim, num_head)


@formula("aten::_transformer_encoder_layer_fwd")
def encoder_layer(
    src: Operand, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any,
    proj_weight: Any, proj_bias: Any, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Any, norm_bias_1: Any, norm_weight_2: Any, norm_bias_2: Any,
    ffn_weight_1: Operand, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """The attention, two linear layers (s·e·f each), two norms, the activation, two sums."""
    attention = _heads(src, src, embed_dim, num_heads)
    tokens, wide = sum(_lengths(src)), ffn_weight_1.shape[0]
    linear = product(2 * tokens * embed_dim * wide, src)
    # Each norm 8 per element: mean 1, variance 3, normalised 2, weight and bias 2.
    vector = tokens * (wide + (2 * 8 + 2) * embed_dim)
    return attention._replace(
        matmul=attention.matmul + linear.matmul, vector=attention.vector + vector
    )


@formula("aten::_fused_sdp_choice")
def choice(*args: Any, **kwargs: Any) -> Work:
    """Which kernel to use: no arithmetic."""
    return Work()
