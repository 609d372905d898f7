"""The types that fused and quantised operators give, which onnx does not know.

Most are those of the plain operator that they replace, asked of onnx on the same inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from onnx import NodeProto, TensorProto, TypeProto, helper

from torchgauge.readers.onnx.element_types import Value
from torchgauge.readers.onnx.subgraphs import dimensions

_Inputs = Sequence[Value | None]
_Infer = Callable[[NodeProto, str, _Inputs, dict[str, Any]], list[TypeProto | None]]

# The plain operator, and which of the inputs it takes.
_LIKE: dict[str, tuple[str, Sequence[int]]] = {
    "FusedConv": ("Conv", (0, 1, 2)),
    "Conv": ("Conv", (0, 1, 2)),
    "FusedGemm": ("Gemm", (0, 1, 2)),
    "MaxPool": ("MaxPool", (0,)),
    "AveragePool": ("AveragePool", (0,)),
    "GlobalAveragePool": ("GlobalAveragePool", (0,)),
    "GlobalMaxPool": ("GlobalMaxPool", (0,)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearMul": ("Mul", (0, 3)),
    "QLinearWhere": ("Where", (0, 1, 4)),
}
# Every output that is as the first input.
_LIKE_FIRST = """
    BiasAdd BiasGelu BiasSoftmax FastGelu Gelu GroupNorm QLinearLeakyRelu QLinearSigmoid
    QLinearSoftmax QuickGelu ReorderInput ReorderOutput RotaryEmbedding SkipGroupNorm
"""
_QUANTISED = (TensorProto.UINT8, TensorProto.INT8)
# Those of ai.onnx that ONNX Runtime has in every opset.
_ANY_OPSET = ("LayerNormalization", "SimplifiedLayerNormalization")


class _Call(NamedTuple):
    """A node's inputs as types and shapes, () where unknown or left out, and its attributes."""

    kinds: Sequence[TypeProto | None]
    attributes: dict[str, Any]

    def shape(self, position: int) -> tuple[Any, ...]:
        kind = self.kinds[position] if position < len(self.kinds) else None
        return () if kind is None else dimensions(kind) or ()

    def tensor(self, like: int, *sizes: Any) -> TypeProto:
        """Return the type of a tensor with the elements of an input; float where that is absent."""
        kind = self.kinds[like] if like < len(self.kinds) else None
        number = 0 if kind is None else kind.tensor_type.elem_type
        return helper.make_tensor_type_proto(number or TensorProto.FLOAT, list(sizes))

    def key_count(self, past: Sequence[Any], length: Any) -> Any:
        """Return the positions of keys after a call: those before it, unless these have room."""
        if past and self.attributes.get("past_present_share_buffer"):
            return past[0]
        return _sum(past[0] if past else 0, length)


_Rule = Callable[[_Call], list[TypeProto] | None]


def contrib_types(
    node: NodeProto, domain: str, inputs: _Inputs, attributes: dict[str, Any], infer: _Infer
) -> list[TypeProto | None]:
    """Return the types of a node's outputs, None for those that are not known."""
    unknown: list[TypeProto | None] = [None] * len(node.output)
    first = inputs[0].kind if inputs and inputs[0] is not None else None
    operator = node.op_type
    is_contrib = _is_microsoft(domain) or (not domain and operator in _ANY_OPSET)
    if not node.output or first is None or not is_contrib:
        return unknown
    call = _Call([None if value is None else value.kind for value in inputs], attributes)
    types: Sequence[TypeProto | None] | None = None
    if operator in _LIKE or operator == "QLinearConcat":
        like = _LIKE.get(operator, ("Concat", range(2, len(inputs), 3)))
        types = infer(*_plain(node, inputs, *like), attributes)
        last = like[1][-1] if like[1] else 0
        if types and types[0] is not None and last < len(call.kinds):
            types[0].tensor_type.elem_type = call.tensor(last).tensor_type.elem_type
    elif operator in _LIKE_FIRST.split():
        types = [first]
    elif operator in _RULES and call.shape(0):
        with contextlib.suppress(ValueError, IndexError):  # fewer dimensions than it takes
            types = _RULES[operator](call)
    return [*(types or ()), *unknown][: len(node.output)]


def _is_microsoft(domain: str) -> bool:
    return domain.startswith(("com.microsoft", "com.ms."))


def _plain(
    node: NodeProto, inputs: _Inputs, operator: str, positions: Sequence[int]
) -> tuple[NodeProto, str, _Inputs]:
    """Return the plain operator with those of the inputs that it takes, as floats.

    Few of the plain ones take bytes.
    """
    chosen = [position for position in positions if position < len(inputs)]
    plain = helper.make_node(operator, [node.input[p] for p in chosen], list(node.output)[:1])
    attributes = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "transA",
             "transB", "ceil_mode", "axis")  # fmt: skip
    plain.attribute.extend(entry for entry in node.attribute if entry.name in attributes)
    return plain, "", [_as_float(inputs[position]) for position in chosen]


def _as_float(value: Value | None) -> Value | None:
    kind = value.kind if value is not None else None
    if kind is None or kind.tensor_type.elem_type not in _QUANTISED:
        return value
    copy = TypeProto()
    copy.CopyFrom(kind)
    copy.tensor_type.elem_type = TensorProto.FLOAT
    return Value(copy)


def _product(second: int = 1, like: int = 0) -> _Rule:
    """A product with the input at `second`, of batches that are broadcast."""

    def rule(call: _Call) -> list[TypeProto] | None:
        a, b = call.shape(0), call.shape(second)
        if len(a) < 2 or len(b) < 2:
            return None
        rows = a[-1] if call.attributes.get("transA") else a[-2]
        columns = b[-2] if call.attributes.get("transB") else b[-1]
        return [call.tensor(like, *_broadcast(a[:-2], b[:-2]), rows, columns)]

    return rule


def _broadcast(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    rank = max(len(a), len(b))
    padded = ((1,) * (rank - len(sizes)) + tuple(sizes) for sizes in (a, b))
    return [y if x == 1 else x if y in (1, x) else None for x, y in zip(*padded, strict=True)]


def _packed_product(call: _Call) -> list[TypeProto]:
    return [call.tensor(0, *call.shape(0)[:-1], call.attributes.get("N"))]


def _average(call: _Call) -> list[TypeProto]:
    batch, *sizes = call.shape(0)
    ones = [1] * (len(sizes) - 1)
    last = call.attributes.get("channels_last")
    return [call.tensor(0, batch, *(*ones, sizes[-1]) if last else (sizes[0], *ones))]


def _norm(call: _Call) -> list[TypeProto]:
    """What comes out, then the means and deviations of rows."""
    shape = call.shape(0)
    axis = call.attributes.get("axis", -1)
    rows = helper.make_tensor_type_proto(
        TensorProto.FLOAT,
        [1 if number >= axis % len(shape) else size for number, size in enumerate(shape)],
    )
    return [call.tensor(0, *shape), rows, rows]


def _skip_norm(call: _Call) -> list[TypeProto]:
    """As a norm, and the sum that it is of."""
    result, *rows = _norm(call)
    return [result, *rows, result]


def _embedding(call: _Call) -> list[TypeProto] | None:
    batch, length = call.shape(0)[:2]
    rows = call.shape(2)
    if not rows:
        return None
    result = call.tensor(2, batch, length, rows[-1])
    return [result, call.tensor(0, batch), result]


def _quantised(call: _Call) -> list[TypeProto]:
    """Of the zero point's type, uint8 without one."""
    has_zero = len(call.kinds) > 2 and call.kinds[2] is not None
    number = call.tensor(2).tensor_type.elem_type if has_zero else TensorProto.UINT8
    return [helper.make_tensor_type_proto(number, list(call.shape(0)))]


def _projected(like: int, past: int) -> _Rule:
    """Attention with its products: what comes out, and the keys and values for the next call."""

    def rule(call: _Call) -> list[TypeProto]:
        batch, length = call.shape(0)[:2]
        widths, columns = call.attributes.get("qkv_hidden_sizes"), call.shape(1)[-1:]
        width = widths[-1] if widths else _share(columns[0] if columns else None, 3)
        heads = call.attributes.get("num_heads")
        keys_after = call.key_count(call.shape(past)[3:4], length)
        present = (2, batch, heads, keys_after, _share(width, heads))
        return [call.tensor(like, batch, length, width), call.tensor(like, *present)]

    return rule


def _attended(past: int) -> _Rule:
    """Queries [b, s, h·d] on keys, or what is packed; with `past` keys before them."""

    def rule(call: _Call) -> list[TypeProto] | None:
        shape, keys, values = (call.shape(position) for position in range(3))
        heads = call.attributes.get("num_heads")
        groups = call.attributes.get("kv_num_heads", heads)
        batch, length, width = (*shape[:2], shape[-1])
        if len(shape) == 5:  # [b, s, h, 3, d]
            size, keys_after, width = width, length, _times(heads, width)
        elif not keys:  # queries, keys and values beside each other
            size, keys_after = _share(width, _sum(heads, _times(2, groups))), length
            width = _times(heads, size)
        else:
            size, keys_after = _share(width, heads), keys[1 if len(keys) != 4 else 2]
            if len(values) == 4:
                width = _times(values[1], values[3])
            elif len(values) == 3 and groups == heads:
                width = values[-1]
        keys_after = call.key_count(call.shape(past)[2:3], keys_after)
        present = call.tensor(past if call.shape(past) else 0, batch, groups, keys_after, size)
        return [call.tensor(0, batch, length, width), present, present]

    return rule


def _lstm(call: _Call) -> list[TypeProto]:
    """X [s, b, in], weights [directions, in, 4·H]."""
    length, batch = call.shape(0)[:2]
    state = (*(call.shape(1)[:1] or (None,)), batch, call.attributes.get("hidden_size"))
    last = call.tensor(0, *state)
    return [call.tensor(0, length, *state), last, last]


def _share(size: Any, parts: Any) -> Any:
    return size // parts if isinstance(size, int) and isinstance(parts, int) and parts > 0 else None


def _times(a: Any, b: Any) -> Any:
    return a * b if isinstance(a, int) and isinstance(b, int) else None


def _sum(a: Any, b: Any) -> Any:
    return a + b if isinstance(a, int) and isinstance(b, int) else None


_RULES: dict[str, _Rule] = {
    "Attention": _projected(0, 4),
    "DecoderMaskedMultiHeadAttention": _attended(5),
    "DequantizeLinear": lambda call: [call.tensor(1, *call.shape(0))],
    "DynamicQuantizeLSTM": _lstm,
    "DynamicQuantizeMatMul": _product(),
    "EmbedLayerNormalization": _embedding,
    "FusedMatMul": _product(),
    "GroupQueryAttention": _attended(3),
    "LayerNormalization": _norm,
    "MatMulBnb4": _packed_product,
    "MatMulIntegerToFloat": _product(like=2),
    "MatMulNBits": _packed_product,
    "MultiHeadAttention": _attended(6),
    "QAttention": _projected(3, 8),
    "QGemm": _product(3, like=8),
    "QLinearGlobalAveragePool": _average,
    "QuantizeLinear": _quantised,
    "SimplifiedLayerNormalization": _norm,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "TransposeMatMul": _product(),
}
