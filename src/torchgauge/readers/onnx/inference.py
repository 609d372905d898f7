"""The types and small values that come out of a node, by onnx's own inference."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from torchgauge.formulas.onnx_kinds import ELEMENTWISE
from torchgauge.readers.onnx.contrib_types import contrib_types
from torchgauge.readers.onnx.element_types import Value
from torchgauge.readers.onnx.model_proto import opsets
from torchgauge.readers.onnx.small_values import MAX_ELEMENTS, OPERATORS, computed
from torchgauge.readers.onnx.subgraphs import dimensions, sizes_of
from torchgauge.records.record import MeasurementWarning

MAX_WARNINGS = 5
LARGEST_SIZE = 2**63 - 1


class Inference:
    """Infers what comes out of a node of a model, from what goes in.

    Attributes:
        warnings: The first few nodes whose inputs do not fit.
    """

    def __init__(self, model: ModelProto) -> None:
        self.warnings: list[MeasurementWarning] = []
        self._opsets = opsets(model)
        self._imports = [
            helper.make_opsetid(domain, version) for domain, version in self._opsets.items()
        ]
        self._ir_version = model.ir_version or 3

    def outputs(
        self,
        node: NodeProto,
        domain: str,
        inputs: Sequence[Value | None],
        attributes: dict[str, Any],
    ) -> list[Value]:
        """Return the outputs of a node without subgraphs."""
        constant = _constant(node.op_type, domain, inputs, attributes)
        if constant is not None:
            return [constant]
        kinds = self._inferred(node, domain, inputs, attributes)
        values = [Value(kind) for kind in kinds]
        if domain or node.op_type not in OPERATORS or not all(map(_is_small, kinds)):
            return values
        arrays = [None if value is None else value.data for value in inputs]
        unknown = any(
            value is not None and array is None for value, array in zip(inputs, arrays, strict=True)
        )
        if unknown or not inputs:
            return values
        with contextlib.suppress(ValueError, IndexError, TypeError, KeyError, OverflowError):
            results = computed(node.op_type, arrays, attributes)
            if results is not None and len(results) == len(values):
                return [_of_array(result) for result in results]
        return values

    def axis_of_transform(
        self, inputs: Sequence[Value | None], attributes: dict[str, Any]
    ) -> dict[str, int]:
        """Return the axis of DFT: an input since opset 20, and the second dimension before."""
        if self._opsets.get("", 1) < 20:
            return {"axis": attributes.get("axis", 1)}
        axis = inputs[2] if len(inputs) > 2 else None
        if axis is None or axis.data is None or axis.data.size != 1:
            return {}
        return {"axis": int(axis.data.ravel()[0])}

    def _inferred(
        self,
        node: NodeProto,
        domain: str,
        inputs: Sequence[Value | None],
        attributes: dict[str, Any],
    ) -> list[TypeProto | None]:
        kinds = {
            name: TypeProto() if value is None or value.kind is None else value.kind
            for name, value in zip(node.input, inputs, strict=True)
            if name
        }
        data = {
            name: onnx.numpy_helper.from_array(value.data)
            for name, value in zip(node.input, inputs, strict=True)
            if name and value is not None and value.data is not None
        }
        try:
            version = self._opsets.get(domain, 1)
            schema = onnx.defs.get_schema(node.op_type, version, domain)
        except onnx.defs.SchemaError:
            return contrib_types(node, domain, inputs, attributes, self._inferred)
        try:
            types = infer_node_outputs(
                schema, node, kinds, data, opset_imports=self._imports,
                ir_version=self._ir_version,
            )  # fmt: skip
        except (InferenceError, ValidationError, RuntimeError, ValueError, TypeError) as error:
            self._misfit(node, error)
            return [None] * len(node.output)
        inferred = [types.get(name) for name in node.output]
        if inferred and f"onnx::{node.op_type}" in ELEMENTWISE and not domain:
            inferred[0] = _broadcast(inferred[0], inputs)
        return inferred

    def _misfit(self, node: NodeProto, error: Exception) -> None:
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(
                MeasurementWarning(
                    id="onnx-shapes",
                    message=f"What comes out of {node.op_type} {node.name!r} has no known shape: "
                    f"{str(error).strip()[:200]}",
                    probe="cost",
                )
            )


def _broadcast(kind: TypeProto | None, inputs: Sequence[Value | None]) -> TypeProto | None:
    """Return the type of an elementwise operator, of some of which onnx infers no shape."""
    if kind is None or dimensions(kind) is not None:
        return kind
    shapes = [sizes_of(value.kind) for value in inputs if value is not None]
    sizes = [shape for shape in shapes if shape is not None]
    if len(sizes) < len(inputs):
        return kind
    with contextlib.suppress(ValueError):
        result = np.broadcast_shapes(*sizes)
        return helper.make_tensor_type_proto(kind.tensor_type.elem_type, result)
    return kind


def _constant(
    operator: str, domain: str, inputs: Sequence[Value | None], attributes: dict[str, Any]
) -> Value | None:
    """Return the value of Constant, and of Shape and Size where the shape is known."""
    if domain or operator not in ("Constant", "Shape", "Size"):
        return None
    if operator == "Constant":
        return _of_attribute(next(iter(attributes.values()), None))
    shape = sizes_of(inputs[0].kind) if inputs and inputs[0] is not None else None
    if shape is None or math.prod(shape) > LARGEST_SIZE:
        return None
    sizes = shape[attributes.get("start", 0) : attributes.get("end")]
    return _of_array(np.array(sizes if operator == "Shape" else math.prod(shape), np.int64))


def _of_attribute(value: Any) -> Value | None:
    if isinstance(value, TensorProto):  # too large to be a shape
        return Value(helper.make_tensor_type_proto(value.data_type, list(value.dims)))
    if isinstance(value, np.ndarray):
        return _of_array(value)
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(number, int | float) for number in numbers):
        return None
    floating = any(isinstance(number, float) for number in numbers)
    return _of_array(np.array(value, np.float32 if floating else np.int64))


def _of_array(array: Any) -> Value:
    """Return a value whose elements are known, and kept where they are few."""
    array = np.asarray(array)
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    kind = helper.make_tensor_type_proto(number, list(array.shape))
    return Value(kind, array if array.size <= MAX_ELEMENTS else None)


def _is_small(kind: TypeProto | None) -> bool:
    sizes = sizes_of(kind)
    return sizes is not None and math.prod(sizes) <= MAX_ELEMENTS
