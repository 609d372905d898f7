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

from torchgauge.formulas.families.normalization import MEAN, NORMALISE, VARIANCE
from torchgauge.formulas.operand import FREE, Operand, Work, is_nested, parts, product
from torchgauge.formulas.registry import formula

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


def square(q: Operand, k: Operand, v: Operand, *, causal: bool, backward: bool = False) -> Work:
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


# The arguments of each operator in their order, as far as work depends on them: of [b, h, s, d]
# heads (_SQUARE), of [b, s, h, d] or of [tokens, h, d] with the ends of the sequences (_PACKED).
_SQUARE = {
    "aten::_scaled_dot_product_flash_attention": "q k v dropout causal",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "q k v dropout causal",
    "aten::_scaled_dot_product_efficient_attention": "q k v bias log_sum dropout causal",
    "aten::_scaled_dot_product_cudnn_attention": "q k v bias log_sum dropout causal",
    "aten::_scaled_dot_product_fused_attention_overrideable": "q k v bias dropout causal",
    "aten::_scaled_dot_product_attention_math": "q k v bias dropout causal",
    "aten::_scaled_dot_product_attention_math_for_mps": "q k v",
    "aten::_triton_scaled_dot_attention": "q k v",
    "aten::_scaled_dot_product_flash_attention_backward":
        "gradient q k v out log_sum cum_q cum_k max_q max_k dropout causal",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward":
        "gradient q k v out log_sum dropout causal",
    "aten::_scaled_dot_product_efficient_attention_backward":
        "gradient q k v bias out log_sum seed offset dropout mask causal",
    "aten::_scaled_dot_product_cudnn_attention_backward":
        "gradient q k v out log_sum seed offset bias cum_q cum_k max_q max_k dropout causal",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward":
        "gradient q k v bias mask out log_sum cum_q cum_k max_q max_k dropout causal",
}  # fmt: skip
_PACKED = {
    "aten::_flash_attention_forward": "q k v ends key_ends max_q max_k dropout causal",
    "aten::_flash_attention_forward_no_dropout_inplace":
        "out q k v ends key_ends max_q max_k dropout causal",
    "aten::_flash_attention_backward":
        "gradient q k v out log_sum ends key_ends max_q max_k dropout causal",
    "aten::_efficient_attention_forward": "q k v bias ends key_ends max_q max_k dropout causal",
    "aten::_efficient_attention_backward":
        "gradient q k v bias out ends key_ends max_q max_k log_sum dropout seed offset causal",
    "aten::_cudnn_attention_forward": "q k v bias ends key_ends max_q max_k log_sum dropout causal",
    "aten::_cudnn_attention_backward":
        "gradient q k v out log_sum seed offset bias ends key_ends max_q max_k dropout causal",
    "flash_attn::_flash_attn_forward": "q k v dropout scale causal",
    "flash_attn::_flash_attn_backward":
        "gradient q k v out log_sum dq dk dv dropout scale causal",
}  # fmt: skip


def _register(name: str, arguments: str, *, packed: bool) -> None:
    names = arguments.split()
    backward = names[0] == "gradient"

    @formula(name)
    def attention(*args: Any, block_table: Any = None, **kwargs: Any) -> Work | None:
        """Two products, backward four; unknown for paged keys (`block_table`)."""
        call = dict(zip(names, args, strict=False))
        q, k, v = call["q"], call["k"], call["v"]
        causal = call.get("causal", kwargs.get("is_causal", False))
        if "efficient" in name and packed:
            causal = causal in CAUSAL_MASKS
        ends, key_ends = call.get("ends"), call.get("key_ends")
        if block_table is not None:
            return None
        if not packed or ("cudnn" in name and ends is None):
            return square(q, k, v, causal=causal, backward=backward)
        if "flash" in name and backward and len(q.shape) != 3:
            ends = None
        return _packed(q, k, v, ends, key_ends, causal=causal, backward=backward)


for _name, _arguments in _SQUARE.items():
    _register(_name, _arguments, packed=False)
for _name, _arguments in _PACKED.items():
    _register(_name, _arguments, packed=True)


@formula("aten::_fused_sdp_choice")
def choice(*_args: Any, **_named: Any) -> Work:
    """Which kernel to use: no arithmetic."""
    return FREE


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
