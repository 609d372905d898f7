"""The types that fused and quantised operators give, which onnx does not know.

Most are those of the plain operator that they replace, asked of onnx on the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnx import NodeProto, TensorProto, TypeProto, helper

from torchgauge.readers.onnx.input_shapes import dimensions
from torchgauge.readers.onnx.value import Value

_Inputs = Sequence[Value | None]
_Infer = Callable[[NodeProto, str, _Inputs, dict[str, Any]], list[TypeProto | None]]

# The plain operator, and which of the inputs it takes.
_LIKE: dict[str, tuple[str, tuple[int, ...]]] = {
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
    "QuantizeLinear": ("QuantizeLinear", (0, 1, 2)),
    "DequantizeLinear": ("DequantizeLinear", (0, 1, 2)),
}
# Every output that is as the first input.
_LIKE_FIRST = """
    BiasAdd BiasGelu BiasSoftmax FastGelu Gelu GroupNorm MultiHeadAttention QLinearLeakyRelu
    QLinearSigmoid QLinearSoftmax QuickGelu ReorderInput ReorderOutput RotaryEmbedding
    SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization
"""
_PRODUCTS = ("DynamicQuantizeMatMul", "FusedMatMul", "MatMulIntegerToFloat", "TransposeMatMul")


def contrib_types(
    node: NodeProto, domain: str, inputs: _Inputs, attributes: dict[str, Any], infer: _Infer
) -> list[TypeProto | None]:
    """Return the types of a node's outputs, None for those that are not known."""
    unknown: list[TypeProto | None] = [None] * len(node.output)
    first = inputs[0].kind if inputs and inputs[0] is not None else None
    if not node.output or first is None or not _is_microsoft(domain):
        return unknown
    operator = node.op_type
    if operator in _LIKE:
        return [*infer(*_plain(node, inputs, *_LIKE[operator]), attributes), *unknown][
            : len(node.output)
        ]
    if operator in _LIKE_FIRST.split():
        return [_like_first(node, first, inputs), *unknown[1:]]
    shape = dimensions(first)
    if shape is None:
        return unknown
    if operator in _PRODUCTS:
        sizes = _product(shape, inputs, attributes)
        return [
            _tensor(TensorProto.FLOAT if "Quant" in operator else 0, first, sizes),
            *unknown[1:],
        ]
    if operator in ("MatMulNBits", "MatMulBnb4"):
        return [_tensor(0, first, [*shape[:-1], attributes.get("N")]), *unknown[1:]]
    if operator in ("Attention", "QAttention"):
        return [_tensor(0, first, [*shape[:2], _values_width(inputs, attributes)]), *unknown[1:]]
    if operator == "GroupQueryAttention" and len(inputs) > 1 and inputs[1] is not None:
        return [first, *unknown[1:]]
    if operator == "EmbedLayerNormalization":
        words = inputs[2].kind if len(inputs) > 2 and inputs[2] is not None else None
        rows = None if words is None else dimensions(words)
        return unknown if not rows else [_tensor(0, words, [*shape, rows[-1]]), *unknown[1:]]
    return unknown


def _is_microsoft(domain: str) -> bool:
    return domain.startswith(("com.microsoft", "com.ms."))


def _plain(
    node: NodeProto, inputs: _Inputs, operator: str, positions: Sequence[int]
) -> tuple[NodeProto, str, _Inputs]:
    """Return the plain operator with those of the inputs that it takes."""
    chosen = [position for position in positions if position < len(inputs)]
    plain = helper.make_node(operator, [node.input[p] for p in chosen], list(node.output)[:1])
    attributes = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "transA",
             "transB", "ceil_mode", "axis")  # fmt: skip
    plain.attribute.extend(entry for entry in node.attribute if entry.name in attributes)
    return plain, "", [inputs[position] for position in chosen]


def _like_first(node: NodeProto, first: TypeProto, inputs: _Inputs) -> TypeProto | None:
    """Return the first input's type; attention on packed or wider values has another width."""
    if node.op_type != "MultiHeadAttention":
        return first
    shape, values = dimensions(first), None
    if len(inputs) > 2 and inputs[2] is not None and inputs[2].kind is not None:
        values = dimensions(inputs[2].kind)
    if shape is None or len(shape) != 3:
        return None
    width = values[-1] if values is not None and len(values) == 3 else shape[-1]
    return _tensor(0, first, [*shape[:-1], width])


def _product(a: Sequence[Any], inputs: _Inputs, attributes: dict[str, Any]) -> list[Any] | None:
    second = inputs[1].kind if len(inputs) > 1 and inputs[1] is not None else None
    b = None if second is None else dimensions(second)
    if not b or len(a) < 2 or len(b) < 2:
        return None
    rows = a[-1] if attributes.get("transA") else a[-2]
    columns = b[-2] if attributes.get("transB") else b[-1]
    longer = max(a[:-2], b[:-2], key=len)
    return [*longer, rows, columns]


def _values_width(inputs: _Inputs, attributes: dict[str, Any]) -> Any:
    sizes = attributes.get("qkv_hidden_sizes")
    weights = inputs[1].kind if len(inputs) > 1 and inputs[1] is not None else None
    shape = None if weights is None else dimensions(weights)
    if sizes:
        return sizes[-1]
    return shape[-1] // 3 if shape and isinstance(shape[-1], int) else None


def _tensor(number: int, like: TypeProto | None, sizes: Sequence[Any] | None) -> TypeProto | None:
    if sizes is None:
        return None
    number = number or (like.tensor_type.elem_type if like is not None else 0)
    return helper.make_tensor_type_proto(number, list(sizes))
