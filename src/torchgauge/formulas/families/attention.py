"""Attention: two products, queries with keys and weights with values, and a softmax between.

A causal kernel skips the upper triangle in part; `matmul` counts the whole square, `causal` the
exact triangle, where as many queries as keys are there. Backward there are four products: the
gradients of weights, values, queries and keys. The scores that flash kernels compute once more are
not the model's work (torch's FlopCounterMode counts them as a fifth): a figure must not depend on
the kernel that was chosen. Nor do masks, sliding windows and dropout save work. Heads are those of
the queries: grouped keys serve several.
"""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from torchgauge.formulas.nested import is_nested, parts
from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.work import FREE, Work, product

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
    work = product(times * heads * pairs * inner, q)
    triangle = None if causal is None else product(times * heads * causal * inner, q).matmul
    softmax = (SOFTMAX_BACKWARD if backward else SOFTMAX) * heads * pairs
    return work._replace(causal=triangle, vector=softmax)


def _triangle(queries: int, keys: int, *, causal: bool) -> int | None:
    return queries * (queries + 1) // 2 if causal and queries == keys else None


def _square(q: Operand, k: Operand, v: Operand, *, causal: bool, backward: bool = False) -> Work:
    """[..., heads, queries, D]: the layout of scaled_dot_product_attention."""
    if is_nested(q):
        # Each part is [heads, queries, D].
        query_parts, key_parts, value_parts = parts(q), parts(k), parts(v)
        lengths, key_lengths = [part[-2] for part in query_parts], [part[-2] for part in key_parts]
        inner = query_parts[0][-1] + value_parts[0][-1] if query_parts else 0
        heads = query_parts[0][0] if query_parts else 0
        return _variable_length(
            q, heads, lengths, key_lengths, causal=causal, inner=inner, backward=backward
        )
    queries, keys = q.shape[-2], k.shape[-2]
    heads = math.prod(q.shape[:-2])
    inner = q.shape[-1] + v.shape[-1]
    triangle = _triangle(queries, keys, causal=causal)
    return _attention(q, heads, queries * keys, triangle, inner=inner, backward=backward)


def _packed(
    q: Operand, k: Operand, v: Operand, ends: Any, key_ends: Any, *, causal: bool,
    backward: bool = False,
) -> Work | None:  # fmt: skip
    """[batch, sequence, heads, D], or sequences of several lengths one after the other."""
    heads, inner = q.shape[-2], q.shape[-1] + v.shape[-1]
    if ends is None:
        batch, queries, keys = q.shape[0], q.shape[1], k.shape[1]
        triangle = _triangle(queries, keys, causal=causal)
        return _attention(
            q, batch * heads, queries * keys, triangle, inner=inner, backward=backward
        )
    lengths = _sequence_lengths(ends)
    key_lengths = lengths if key_ends is None else _sequence_lengths(key_ends)
    if lengths is None or key_lengths is None:
        return None
    return _variable_length(
        q, heads, lengths, key_lengths, causal=causal, inner=inner, backward=backward
    )


def _variable_length(
    q: Operand, heads: int, lengths: list[int], key_lengths: list[int], *, causal: bool, inner: int,
    backward: bool,
) -> Work:  # fmt: skip
    """Each sequence's queries meet its own keys."""
    pairs = sum(a * b for a, b in zip(lengths, key_lengths, strict=True))
    exact = causal and lengths == key_lengths
    triangle = sum(a * (a + 1) // 2 for a in lengths) if exact else None
    return _attention(q, heads, pairs, triangle, inner=inner, backward=backward)


def _sequence_lengths(ends: Any) -> list[int] | None:
    """Return the sequences' lengths; None where the places of their ends have no values."""
    if not hasattr(ends, "tolist") or str(ends.device) == "meta":
        return None
    return [end - start for start, end in pairwise(ends.tolist())]


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


@formula(
    "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_dot_product_attention_math",
)
def overrideable(
    query: Operand, key: Operand, value: Operand, attn_bias: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *args: Any, **kwargs: Any,
) -> Work:  # fmt: skip
    """The same where a backend, or a nested batch, has its own kernel."""
    return _square(query, key, value, causal=is_causal)


@formula("aten::_scaled_dot_product_attention_math_for_mps", "aten::_triton_scaled_dot_attention")
def single_kernel(q: Operand, k: Operand, v: Operand, *args: Any, **kwargs: Any) -> Work:
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
    max_k: int, dropout_p: float, is_causal: bool, *args: Any, block_table: Any = None,
    **kwargs: Any,
) -> Work | None:  # fmt: skip
    """[b, s, h, d], or [tokens, h, d] with the ends of the sequences; unknown for paged keys."""
    if block_table is not None:
        return None
    return _packed(query, key, value, cum_seq_q, cum_seq_k, causal=is_causal)


@formula("aten::_flash_attention_forward_no_dropout_inplace")
def flash_inplace(
    out: Any, query: Operand, key: Operand, value: Operand, *args: Any, **kwargs: Any
) -> Work | None:
    """The same, written to `out`."""
    return flash_forward(query, key, value, *args, **kwargs)


@formula("aten::_flash_attention_backward")
def flash_attention_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    *args: Any, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """Four products."""
    packed = cum_seq_q if len(query.shape) == 3 else None
    return _packed(query, key, value, packed, cum_seq_k, causal=is_causal, backward=True)


@formula("flash_attn::_flash_attn_forward")
def flash_package(
    q: Operand, k: Operand, v: Operand, dropout_p: float, softmax_scale: float, causal: bool,
    *args: Any, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """[b, s, h, d], as the package flash-attn registers it."""
    return _packed(q, k, v, None, None, causal=causal)


@formula("flash_attn::_flash_attn_backward")
def flash_package_backward(
    dout: Any, q: Operand, k: Operand, v: Operand, out: Any, softmax_lse: Any, dq: Any, dk: Any,
    dv: Any, dropout_p: float, softmax_scale: float, causal: bool, *args: Any, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """Four products."""
    return _packed(q, k, v, None, None, causal=causal, backward=True)


@formula("aten::_efficient_attention_forward")
def efficient_forward(
    query: Operand, key: Operand, value: Operand, bias: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: Any, max_seqlen_k: Any, dropout_p: float, custom_mask_type: int,
    *args: Any, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """[b, s, h, d], or [1, tokens, h, d] with the ends of the sequences."""
    causal = custom_mask_type in CAUSAL_MASKS
    return _packed(query, key, value, cu_seqlens_q, cu_seqlens_k, causal=causal)


@formula("aten::_efficient_attention_backward")
def efficient_attention_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, bias: Any, out: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, logsumexp: Any,
    dropout_p: float, philox_seed: Any, philox_offset: Any, custom_mask_type: int,
    *args: Any, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """Four products."""
    causal = custom_mask_type in CAUSAL_MASKS
    return _packed(query, key, value, cu_seqlens_q, cu_seqlens_k, causal=causal, backward=True)


@formula("aten::_cudnn_attention_forward")
def cudnn_forward(
    query: Operand, key: Operand, value: Operand, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any,
    max_q: int, max_k: int, compute_log_sumexp: bool, dropout_p: float = 0.0,
    is_causal: bool = False, *args: Any, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """[b, h, s, d], or [tokens, h, d] with the ends of the sequences."""
    if cum_seq_q is None:
        return _square(query, key, value, causal=is_causal)
    return _packed(query, key, value, cum_seq_q, cum_seq_k, causal=is_causal)


@formula("aten::_cudnn_attention_backward")
def cudnn_attention_backward(
    grad_out: Any, query: Operand, key: Operand, value: Operand, out: Any, logsumexp: Any,
    philox_seed: Any, philox_offset: Any, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any,
    max_q: int, max_k: int, dropout_p: float, is_causal: bool, **kwargs: Any,
) -> Work | None:  # fmt: skip
    """Four products."""
    if len(query.shape) == 4:
        return _square(query, key, value, causal=is_causal, backward=True)
    return _packed(query, key, value, cum_seq_q, cum_seq_k, causal=is_causal, backward=True)


@formula("aten::_fused_sdp_choice")
def choice(*_args: Any, **_named: Any) -> Work:
    """Which kernel to use: no arithmetic."""
    return FREE
