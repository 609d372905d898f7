"""The types that fused and quantised operators give, which onnx does not know, by ONNX Runtime.

It loads a model of the one node, which it never runs, and names the types of its outputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from torchgauge.readers.onnx.element_types import Value
from torchgauge.readers.onnx.subgraphs import dimensions

# The operators of ONNX Runtime that only GPUs have: their first output is as the first input.
_LIKE_FIRST = ("BiasAdd", "BiasSoftmax", "GroupNorm", "SkipGroupNorm")
# Attention, with the input that has the keys of earlier calls, and which of its dimensions counts
# them: ONNX Runtime knows the shapes of the caches that come out only where such keys go in.
_CACHES = {
    "Attention": (4, 3), "DecoderMaskedMultiHeadAttention": (5, 2), "GroupQueryAttention": (3, 2),
    "MultiHeadAttention": (6, 2), "QAttention": (8, 3),
}  # fmt: skip
_KINDS = {"float": "FLOAT", "double": "DOUBLE"}
# Those of ai.onnx that ONNX Runtime has in every opset.
_ANY_OPSET = ("LayerNormalization", "SimplifiedLayerNormalization")


def contrib_types(
    node: NodeProto,
    domain: str,
    inputs: Sequence[Value | None],
    attributes: dict[str, Any],
    model: ModelProto,
) -> list[TypeProto | None]:
    """Return the types of a node's outputs, None for those that are not known."""
    unknown: list[TypeProto | None] = [None] * len(node.output)
    first = inputs[0].kind if inputs and inputs[0] is not None else None
    is_contrib = domain.startswith(("com.microsoft", "com.ms."))
    if not node.output or first is None or not (is_contrib or node.op_type in _ANY_OPSET):
        return unknown
    if node.op_type in _LIKE_FIRST:
        return [first, *unknown[1:]]
    outputs = {
        output.name: output for output in _outputs(_model_of_node(node, domain, inputs, model))
    }
    types = [_type(outputs[name]) if name in outputs else None for name in node.output]
    if node.op_type in _CACHES and outputs:
        shape: list[Any] = []
        with contextlib.suppress(TypeError, ValueError, LookupError, ZeroDivisionError):
            shape = _cache_shape(node.op_type, inputs, attributes)
        for kind in filter(None, types[1:]):
            if shape and None in (dimensions(kind) or (None,)):
                kind.CopyFrom(helper.make_tensor_type_proto(kind.tensor_type.elem_type, shape))
    return types


def _cache_shape(
    operator: str, inputs: Sequence[Value | None], attributes: dict[str, Any]
) -> list[Any]:
    """Return the shape of the keys for the next call; TypeError for sizes without numbers."""
    position, counted = _CACHES[operator]
    shapes: list[Any] = [
        (value and value.kind and dimensions(value.kind)) or () for value in inputs
    ]
    shapes += [()] * (position + 1 - len(shapes))
    (batch, length, *_), keys, past = shapes[0], shapes[1], shapes[position]
    heads = attributes["num_heads"]
    groups = attributes.get("kv_num_heads", heads)
    width = shapes[0][-1]
    if counted == 3:  # weights, whose columns are queries, keys and values
        sizes = attributes.get("qkv_hidden_sizes")
        width = sizes[-1] if sizes else keys[-1] // 3
    elif len(shapes[0]) == 5:  # [b, s, h, 3, d]
        width = heads * width
    elif not keys:  # queries, keys and values beside each other
        width = width // (heads + 2 * groups) * heads
    else:
        length = keys[2 if len(keys) == 4 else 1]
    before = past[counted] if past else 0
    new = 0 if past and attributes.get("past_present_share_buffer") else length
    return [*[2] * (counted == 3), batch, groups, sum((before, new)), width // heads]


def _model_of_node(
    node: NodeProto, domain: str, inputs: Sequence[Value | None], model: ModelProto
) -> ModelProto:
    """Return a model of one node, in which values that may decide a shape are stored."""
    named = {name: value for name, value in zip(node.input, inputs, strict=True) if name and value}
    graph = helper.make_graph(
        [node],
        "node",
        [
            ValueInfoProto(name=name, type=value.kind)
            for name, value in named.items()
            if value.data is None
        ],
        [ValueInfoProto(name=name) for name in node.output if name],
        [
            numpy_helper.from_array(value.data, name)
            for name, value in named.items()
            if value.data is not None
        ],
    )
    versions = {domain: 1} | {entry.domain: entry.version for entry in model.opset_import}
    imports = [helper.make_opsetid(*version) for version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _outputs(model: ModelProto) -> list[Any]:
    """Return the outputs of a model as ONNX Runtime describes them; none of one that it refuses."""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        content = model.SerializeToString()
        session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - its errors have no base class, and mean "unknown" here
        return []
    return list(session.get_outputs())


def _type(output: Any) -> TypeProto:
    """Return the type of an output like "tensor(float)"; its shape is unknown where it is empty."""
    name = output.type.removeprefix("tensor(").removesuffix(")")
    number = TensorProto.DataType.Value(_KINDS.get(name, name.upper()))
    return helper.make_tensor_type_proto(number, output.shape or None)
