"""Values that decide shapes: small tensors that are the same in every call, computed by onnx.

Exporters write sizes as computations: Shape, Gather, Concat, Reshape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from torchgauge.readers.onnx.element_types import ARRAYS
from torchgauge.readers.onnx.model_proto import subgraphs
from torchgauge.records.onnx.graph import Attribute

# Elements; a shape has as many as a tensor has dimensions, a table of indices some hundreds.
MAX_ELEMENTS = 4096

# That exporters compute sizes with.
OPERATORS = """
    Abs Add And Cast Ceil Concat ConstantOfShape Div Equal Expand Floor Gather Greater
    GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Range ReduceMax ReduceMin
    ReduceProd ReduceSum Reshape Round Sign Slice Split Sqrt Squeeze Sub Transpose Unsqueeze Where
"""


def computed(node: NodeProto, values: Sequence[Any], opset: int) -> list[Any] | None:
    """Return a node's outputs from those of its inputs, None where they cannot be computed.

    The caller knows that what comes out is small. A left-out input is None.
    """
    from onnx.reference import ReferenceEvaluator  # its operators take as long to load as onnx

    named = {name: value for name, value in zip(node.input, values, strict=True) if name}
    imports = [helper.make_opsetid("", opset)]
    function = helper.make_function("", "values", list(named), list(node.output), [node], imports)
    with np.errstate(all="ignore"):
        try:
            results = ReferenceEvaluator(function).run(list(node.output), named, {})
        except Exception:  # noqa: BLE001 - whatever NumPy raises for values that do not fit
            return None
    return [np.asarray(result) for result in results]


# Of a list that is longer no formula knows anything.
LONGEST_LIST, LONGEST_TEXT = 64, 400
NOTED = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy", "namespace")
# An exporter notes some thousand characters at most for the deepest models.
LONGEST_NOTE = 20_000


class Attributes(NamedTuple):
    """Values by name: numbers, texts, lists of them, arrays, large tensors; and the subgraphs."""

    values: dict[str, Any]
    graphs: dict[str, GraphProto]


def attributes_of(node: NodeProto) -> Attributes:
    """Return the attributes of a node."""
    values, graphs = dict[str, Any](), dict[str, GraphProto]()
    for attribute in node.attribute:
        nested = subgraphs(attribute)
        for number, graph in enumerate(nested):
            graphs[f"{attribute.name}{number or ''}"] = graph
        if not nested:
            values[attribute.name] = _value(attribute)
    return Attributes(values, graphs)


def _value(attribute: AttributeProto) -> Any:
    kind = attribute.type
    if kind == AttributeProto.INT:
        return attribute.i
    if kind == AttributeProto.FLOAT:
        return attribute.f
    if kind == AttributeProto.STRING:
        return attribute.s.decode(errors="replace")
    if kind == AttributeProto.TENSOR:
        return _array(attribute.t)
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOATS:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRINGS:
        return tuple(text.decode(errors="replace") for text in attribute.strings)
    return None


def _array(tensor: TensorProto) -> Any:
    """Return a small tensor as an array, another as it is."""
    if math.prod(tensor.dims) > MAX_ELEMENTS or tensor.data_type not in ARRAYS:
        return tensor
    if tensor.data_location == TensorProto.EXTERNAL:
        return tensor
    return onnx.numpy_helper.to_array(tensor)


def plain(values: dict[str, Any]) -> dict[str, Attribute]:
    """Return those that a record can hold."""
    return {name: value for name, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) <= LONGEST_LIST and all(map(_is_plain, value))
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, np.generic)


def metadata_of(node: NodeProto) -> dict[str, str]:
    """Return what exporters note of the layer."""
    return {
        entry.key: entry.value
        for entry in node.metadata_props
        if entry.key in NOTED and len(entry.value) <= LONGEST_NOTE
    }
