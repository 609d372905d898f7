"""Multi-head attention and encoder layers that run as one operator (in eval without gradients)."""

# ruff: noqa: ARG001 - a formula has the parameters of its operator

from __future__ import annotations

from typing import Any

from torchgauge.formulas.families.attention import SOFTMAX
from torchgauge.formulas.families.normalization import MEAN, NORMALISE, VARIANCE
from torchgauge.formulas.nested import parts
from torchgauge.formulas.operand import Operand
from torchgauge.formulas.registry import formula
from torchgauge.formulas.work import Work, product

# Weight and bias are a product and a sum.
NORM = MEAN + VARIANCE + NORMALISE + 2


def _heads(query: Any, key: Any, embed_dim: int, num_head: int) -> Work:
    """[b, s, e], or a nested tensor of [s, e]."""
    queries, keys = [part[0] for part in parts(query)], [part[0] for part in parts(key)]
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
    tokens, wide = sum(part[0] for part in parts(src)), ffn_weight_1.shape[0]
    linear = product(2 * tokens * embed_dim * wide, src)
    vector = tokens * (wide + (2 * NORM + 2) * embed_dim)
    return attention._replace(
        matmul=attention.matmul + linear.matmul, vector=attention.vector + vector
    )
