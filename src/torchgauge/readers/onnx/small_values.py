"""Values that decide shapes: small tensors that are the same in every call, computed with NumPy.

Exporters write sizes as computations: Shape, Gather, Concat, Reshape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from torchgauge.readers.onnx.element_types import ARRAYS
from torchgauge.readers.onnx.model_proto import subgraphs
from torchgauge.records.onnx.graph import Attribute

# Elements; a shape has as many as a tensor has dimensions, a table of indices some hundreds.
MAX_ELEMENTS = 4096
_Values = Sequence[Any]
_Attributes = Mapping[str, Any]


def computed(operator: str, values: _Values, attributes: _Attributes) -> list[Any] | None:
    """Return an operator's outputs from those of its inputs, None where it is not among these.

    The caller knows that what comes out is small. A left-out input is None.
    """
    compute = _ELEMENTWISE.get(operator)
    with np.errstate(all="ignore"):
        if compute is not None:
            return [np.asarray(compute(*values))]
        rule = _RULES.get(operator)
        return None if rule is None else rule(values, attributes)


def _quotient(a: Any, b: Any) -> Any:
    """Whole numbers are divided towards zero."""
    if np.issubdtype(np.result_type(a, b), np.integer):
        quotient = np.abs(a) // np.maximum(np.abs(b), 1)
        return (quotient * np.sign(a) * np.sign(b)).astype(np.result_type(a, b))
    return a / b


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Div": _quotient,
    "Equal": np.equal,
    "Floor": np.floor,
    "Greater": np.greater,
    "Identity": np.asarray,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Max": lambda *v: np.max(np.broadcast_arrays(*v), axis=0),
    "Mul": np.multiply,
    "Min": lambda *v: np.min(np.broadcast_arrays(*v), axis=0),
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Round": np.round,
    "Sign": np.sign,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Where": np.where,
}


def _axes(values: _Values, attributes: _Attributes) -> tuple[int, ...] | None:
    """Return the axes: an input since opset 13, an attribute before; None where there are none."""
    if len(values) > 1 and values[1] is not None:
        return tuple(int(axis) for axis in values[1].ravel()) or None
    return tuple(attributes.get("axes") or ()) or None


def _cast(values: _Values, attributes: _Attributes) -> list[Any] | None:
    kind = ARRAYS.get(attributes.get("to", 0))
    return None if kind is None else [values[0].astype(kind)]


def _gather(values: _Values, attributes: _Attributes) -> list[Any]:
    return [np.take(values[0], values[1].astype(np.int64), axis=attributes.get("axis", 0))]


def _slice(values: _Values, attributes: _Attributes) -> list[Any]:
    if len(values) > 1:
        starts, ends, axes, steps = (
            None if value is None else [int(number) for number in value]
            for value in (*values[1:], None, None)[:4]
        )
    else:
        starts, ends = list(attributes["starts"]), list(attributes["ends"])
        axes, steps = attributes.get("axes"), None
    index = [slice(None)] * values[0].ndim
    for position, (start, end) in enumerate(zip(starts or (), ends or (), strict=True)):
        step, axis = steps[position] if steps else 1, axes[position] if axes else position
        stop = None if step < 0 and end < -values[0].shape[axis] else end
        index[axis] = slice(start, stop, step)
    return [values[0][tuple(index)]]


def _unsqueeze(values: _Values, attributes: _Attributes) -> list[Any]:
    return [np.expand_dims(values[0], _axes(values, attributes) or ())]


def _mod(values: _Values, attributes: _Attributes) -> list[Any]:
    return [(np.fmod if attributes.get("fmod", 0) else np.mod)(values[0], values[1])]


def _reshape(values: _Values, _attributes: _Attributes) -> list[Any]:
    before = values[0].shape
    sizes = [
        before[position] if size == 0 and position < len(before) else int(size)
        for position, size in enumerate(values[1])
    ]
    return [values[0].reshape(sizes)]


def _expand(values: _Values, _attributes: _Attributes) -> list[Any]:
    sizes = np.broadcast_shapes(values[0].shape, tuple(int(size) for size in values[1]))
    return [np.broadcast_to(values[0], sizes)]


def _constant_of_shape(values: _Values, attributes: _Attributes) -> list[Any] | None:
    value = attributes.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray):
        return None
    return [np.full(tuple(int(size) for size in values[0]), value.ravel()[0], value.dtype)]


def _range(values: _Values, _attributes: _Attributes) -> list[Any]:
    start, limit, step = (value.ravel()[0] for value in values)
    return [np.arange(start, limit, step, dtype=values[0].dtype)]


def _split(values: _Values, attributes: _Attributes) -> list[Any] | None:
    size_input = values[1] if len(values) > 1 else None
    sizes = attributes.get("split") if size_input is None else [int(size) for size in size_input]
    axis, parts = attributes.get("axis", 0), attributes.get("num_outputs", 0)
    if sizes:
        return np.split(values[0], np.cumsum(sizes)[:-1], axis=axis)
    if parts < 1:
        return None
    size = values[0].shape[axis]  # of which only the last part is smaller
    return np.split(values[0], range(-(-size // parts), size, -(-size // parts)), axis=axis)


def _reduced(reduce: Callable[..., Any]) -> Callable[[_Values, _Attributes], list[Any]]:
    def rule(values: _Values, attributes: _Attributes) -> list[Any]:
        keeps, axes = bool(attributes.get("keepdims", 1)), _axes(values, attributes)
        if axes is None and attributes.get("noop_with_empty_axes", 0):
            return [values[0]]
        return [np.asarray(reduce(values[0], axis=axes, keepdims=keeps))]

    return rule


_RULES: dict[str, Callable[[_Values, _Attributes], list[Any] | None]] = {
    "Cast": _cast,
    "Concat": lambda values, attributes: [np.concatenate(values, axis=attributes.get("axis", 0))],
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Gather": _gather,
    "Mod": _mod,
    "Range": _range,
    "Reshape": _reshape,
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": lambda values, attributes: [np.squeeze(values[0], _axes(values, attributes))],
    "Transpose": lambda values, attributes: [np.transpose(values[0], attributes.get("perm"))],
    "Unsqueeze": _unsqueeze,
}
OPERATORS = frozenset(_ELEMENTWISE) | frozenset(_RULES)


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
