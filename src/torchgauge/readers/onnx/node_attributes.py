"""The attributes of a node as plain values, and what the exporter noted of its layer."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from torchgauge.readers.onnx.element_types import ARRAYS
from torchgauge.readers.onnx.model_proto import subgraphs
from torchgauge.readers.onnx.small_values import MAX_ELEMENTS
from torchgauge.records.onnx.graph import Attribute

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
