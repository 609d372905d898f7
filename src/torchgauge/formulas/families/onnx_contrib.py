"""Fused and quantised operators of com.microsoft, by the formulas of what they replace."""

# ruff: noqa: ARG001, N803 - a formula has the parameters of its operator

from __future__ import annotations

import math
from typing import Any

from torchgauge.formulas.families.normalization import layer_norm, rms_norm
from torchgauge.formulas.families.onnx import attended, by_heads
from torchgauge.formulas.operand import Described, Operand, Work, elements, product, tensors, vector
from torchgauge.formulas.promotion import pointwise_work, reduction_work
from torchgauge.formulas.registry import formula


def _present(*operands: Any) -> int:
    return sum(operand is not None for operand in operands)


def _plus(work: Work, operations: int, operand: Operand) -> Work:
    """Return the work with so many more per element."""
    added = vector(operations * elements(operand), operand)
    return work._replace(vector=work.vector + added.vector, integer=work.integer + added.integer)


@formula("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul",
         "com.microsoft::FusedMatMulActivation")  # fmt: skip
def fused_matmul(
    a: Operand, b: Operand, *_args: Any, outputs: Any, transA: int = 0, **_attributes: Any
) -> Work:
    """As MatMul; A may be transposed."""
    inner = a.shape[-2 if transA and len(a.shape) > 1 else -1]
    return product(elements(next(tensors(outputs))) * inner, a)


@formula("com.microsoft::DynamicQuantizeMatMul")
def dynamic_matmul(a: Operand, b: Operand, *_args: Any, outputs: Any, **_attributes: Any) -> Work:
    """A's smallest, largest and quantised values (3 per element), and a product of integers."""
    work = product(elements(next(tensors(outputs))) * a.shape[-1], b)
    return work._replace(vector=3 * elements(a))


@formula("com.microsoft::QGemm")
def qgemm(a: Operand, *_args: Any, outputs: Any, transA: int = 0, **_attributes: Any) -> Work:
    """As Gemm, on integers."""
    return product(elements(next(tensors(outputs))) * a.shape[0 if transA else 1], a)


@formula("com.microsoft::FastGelu")
def fast_gelu(x: Operand, bias: Any = None, *, outputs: Any, **_attributes: Any) -> Work:
    """One per element, and one for the bias."""
    return pointwise_work("gelu", (x,), outputs, 1 + _present(bias))


@formula("com.microsoft::SkipLayerNormalization")
def skip_layer_norm(
    x: Operand, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, **_attributes: Any
) -> Work:
    """As LayerNormalization, of a sum of two or three."""
    return _plus(layer_norm(x, (), gamma, beta), 1 + _present(bias), x)


@formula("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_rms_norm(x: Operand, skip: Any, gamma: Any, bias: Any = None, **_attributes: Any) -> Work:
    """As RMSNormalization, of a sum of two or three."""
    return _plus(rms_norm(x, (), gamma), 1 + _present(bias), x)


@formula("com.microsoft::EmbedLayerNormalization")
def embed_layer_norm(
    ids: Operand, segments: Any, words: Any, positions: Any, segment_rows: Any, gamma: Any,
    beta: Any = None, *_args: Any, outputs: Any, **_attributes: Any,
) -> Work:  # fmt: skip
    """As LayerNormalization, of a sum of two or three embeddings."""
    result = next(tensors(outputs))
    return _plus(layer_norm(result, (), gamma, beta), 1 + _present(segment_rows), result)


@formula("com.microsoft::GroupNorm", "com.microsoft::SkipGroupNorm")
def group_norm(x: Operand, gamma: Any, beta: Any = None, *skipped: Any, **attributes: Any) -> Work:
    """As GroupNormalization, with an activation, and the sums of what is skipped."""
    extra = bool(attributes.get("activation", 0)) + _present(*skipped)
    return _plus(layer_norm(x, (), gamma, beta), extra, x)


@formula("com.microsoft::Attention", "com.microsoft::QAttention")
def projected_attention(
    x: Operand, weights: Operand, *args: Any, num_heads: int = 1, unidirectional: int = 0,
    qkv_hidden_sizes: Any = (), outputs: Any, **_attributes: Any,
) -> Work:  # fmt: skip
    """[b, s, d]: one product for queries, keys and values, then the attention."""
    batch, length = x.shape[:2]
    *_, width = next(tensors(outputs)).shape  # that of the values
    key_width = qkv_hidden_sizes[0] if qkv_hidden_sizes else width
    past = next((a for a in args if a is not None and len(a.shape) == 5), None)
    earlier = 0 if past is None else past.shape[3]
    q = by_heads(Described((batch, length, key_width), str(x.dtype)), num_heads)
    k = by_heads(Described((batch, length, key_width), str(x.dtype)), num_heads, earlier)
    v = by_heads(Described((batch, length, width), str(x.dtype)), num_heads, earlier)
    attention = attended(q, k, v, causal=bool(unidirectional))
    projection = product(elements(x) * weights.shape[-1], x)
    return _joined(attention, projection)


def _joined(attention: Work, projection: Work) -> Work:
    causal = attention.causal
    return attention._replace(
        matmul=attention.matmul + projection.matmul,
        integer=attention.integer + projection.integer,
        causal=None if causal is None else causal + projection.matmul,
    )


@formula("com.microsoft::MultiHeadAttention")
def multi_head_attention(
    q: Operand, k: Any = None, v: Any = None, bias: Any = None, mask: Any = None,
    attention_bias: Any = None, past_key: Any = None, *_args: Any, num_heads: int = 1,
    unidirectional: int = 0, **_attributes: Any,
) -> Work:  # fmt: skip
    """Queries [b, s, h·d] on keys [b, l, h·d] or [b, h, l, d], or all packed [b, s, h, 3, d]."""
    dtype = str(q.dtype)
    if k is None or len(k.shape) == 5:  # packed with the values, or with queries as well
        packed = q if k is None else k
        batch, length, heads, _, size = packed.shape
        keys = values = Described((batch, heads, length, size), dtype)
        queries = keys if k is None else by_heads(q, num_heads)
        return attended(queries, keys, values, causal=bool(unidirectional))
    earlier = 0 if past_key is None else past_key.shape[2]
    values = k if v is None else v
    work = attended(
        by_heads(q, num_heads),
        by_heads(k, num_heads, earlier),
        by_heads(values, num_heads, earlier),
        causal=bool(unidirectional),
    )
    return _plus(work, _present(bias), q)


@formula("com.microsoft::DecoderMaskedMultiHeadAttention")
def decoder_attention(
    q: Operand, k: Any = None, v: Any = None, mask: Any = None, attention_bias: Any = None,
    past_key: Any = None, past_value: Any = None, *args: Any, num_heads: int = 1,
    **_attributes: Any,
) -> Work:  # fmt: skip
    """As MultiHeadAttention for one token; queries, keys and values may be packed in one."""
    bias = args[3] if len(args) > 3 else None
    if k is None:
        batch, length, width = q.shape
        q = k = v = Described((batch, length, width // 3), str(q.dtype))
    work = multi_head_attention(q, k, v, bias, mask, None, past_key, num_heads=num_heads)
    return work._replace(estimated=past_key is not None)  # a buffer may have room for more


@formula("com.microsoft::GroupQueryAttention")
def group_query_attention(
    q: Operand, k: Any = None, v: Any = None, past_key: Any = None, *_args: Any,
    num_heads: int = 1, kv_num_heads: int = 1, **_attributes: Any,
) -> Work:  # fmt: skip
    """Causal, with grouped keys; the positions kept are at most those of the buffer."""
    earlier = 0 if past_key is None else past_key.shape[2]
    if k is None:  # packed: queries, keys and values beside each other
        size = q.shape[-1] // (num_heads + 2 * kv_num_heads)
        batch, length = q.shape[:2]
        queries = Described((batch, num_heads, length, size), str(q.dtype))
        keys = values = Described((batch, kv_num_heads, length + earlier, size), str(q.dtype))
    else:
        queries = by_heads(q, num_heads)
        keys, values = (by_heads(side, kv_num_heads, earlier) for side in (k, v))
    return attended(queries, keys, values, causal=True)._replace(estimated=bool(earlier))


@formula("com.microsoft::Inverse")
def inverse(x: Operand, **_attributes: Any) -> Work:
    """By LU factors: 2 n³."""
    return vector(2 * elements(x) * x.shape[-1], x)


@formula("com.microsoft::Rfft", "com.microsoft::Irfft")
def real_transform(x: Operand, *, outputs: Any, signal_ndim: int = 1, **_attributes: Any) -> Work:
    """As aten::_fft_r2c: 2.5·N·log2 N per transform, over the last dimensions of what is real."""
    result = next(tensors(outputs))
    real = min((x, result), key=lambda operand: len(operand.shape))
    points = math.prod(real.shape[-signal_ndim:])
    work = reduction_work("sum", (real,))
    return work._replace(
        vector=round(2.5 * elements(real) * math.log2(max(1, points))), estimated=True
    )
