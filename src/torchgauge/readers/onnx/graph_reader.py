"""Walk a model's graphs in order, and describe every node with the types of its inputs and outputs.

Types come from onnx's own inference, node by node, with what is known of values that decide shapes
(`small_values`); what the file declares of a value counts where nothing else tells it.
"""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from torchgauge.errors import InputError
from torchgauge.formulas.onnx_kinds import ELEMENTWISE
from torchgauge.readers.onnx import subgraphs
from torchgauge.readers.onnx.contrib_types import contrib_types
from torchgauge.readers.onnx.element_types import ARRAYS, name_of, stored_bytes
from torchgauge.readers.onnx.input_shapes import RequestedShapes, dimensions, inputs_of, resolve
from torchgauge.readers.onnx.model_proto import (
    MAX_NODES,
    external_file,
    external_range,
    load,
    opsets,
    producer,
)
from torchgauge.readers.onnx.node_attributes import attributes_of, metadata_of, plain
from torchgauge.readers.onnx.small_values import MAX_ELEMENTS, OPERATORS, computed
from torchgauge.readers.onnx.value import Scope, Value
from torchgauge.records.onnx.graph import Graph, GraphNode, Initializer, TensorType
from torchgauge.records.record import MeasurementWarning

MAX_WARNINGS = 5
# Domains whose operators ONNX Runtime has without a library.
BUILT_IN = ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft",
            "com.microsoft.nchwc", "com.microsoft.experimental", "com.ms.internal.nhwc",
            "org.pytorch.aten", "ai.onnx.preview")  # fmt: skip


def read(path: Path, requested: RequestedShapes) -> Graph:
    """Return the graph of a file; raises InputError as `model_proto.load` and `resolve`."""
    model = load(path)
    bound = resolve(model.graph, requested, path)
    reader = GraphReader(model, path, bound)
    scope: Scope = ChainMap()
    inputs = inputs_of(model.graph)
    for value in inputs:
        scope[value.name] = Value(value.type)
    reader.run(model.graph, scope, -1, 1)
    outputs = [value.name for value in model.graph.output]
    files = reader.files()
    return Graph(
        name=model.graph.name,
        producer=producer(model),
        opsets=opsets(model),
        inputs=tuple(value.name for value in inputs),
        outputs=tuple(outputs),
        values={
            name: tensor_type(scope[name].kind)
            for name in [*(value.name for value in inputs), *outputs]
            if name in scope
        },
        initializers=tuple(reader.initializers),
        nodes=tuple(reader.nodes),
        files=tuple(file.name for file in files),
        file_bytes=sum(file.stat().st_size for file in files),
        custom_domains=tuple(
            sorted({node.domain for node in reader.nodes if node.domain not in BUILT_IN})
        ),
        warnings=tuple(reader.warnings),
    )


def tensor_type(kind: TypeProto | None) -> TensorType:
    """Return a type as a record; dimensions without size or name are None."""
    if kind is None or kind.WhichOneof("value") != "tensor_type":
        return TensorType()
    return TensorType(dtype=name_of(kind.tensor_type.elem_type), shape=dimensions(kind))


class GraphReader:
    """Describes the nodes of a model in the order of the file, subgraphs after their container."""

    def __init__(self, model: ModelProto, path: Path, bound: dict[str, int]) -> None:
        self.nodes: list[GraphNode] = []
        self.initializers: list[Initializer] = []
        self.warnings: list[MeasurementWarning] = []
        self._path = path
        self._bound = bound
        self._opsets = opsets(model)
        self._imports = [
            helper.make_opsetid(domain, version) for domain, version in self._opsets.items()
        ]
        self._ir_version = model.ir_version or 3
        self._places: dict[tuple[str, int], str] = {}
        self._external: list[Path] = []

    def files(self) -> list[Path]:
        """Return the file, and those beside it that hold its tensors."""
        return [self._path, *dict.fromkeys(self._external)]

    def run(self, graph: GraphProto, scope: Scope, container: int, calls: int | None) -> None:
        """Describe the nodes of a graph whose inputs are in `scope`; its values are added there."""
        for tensor in graph.initializer:
            scope[tensor.name] = self._stored(tensor)
        for sparse in graph.sparse_initializer:
            self._stored(sparse.values)
            kind = helper.make_tensor_type_proto(sparse.values.data_type, list(sparse.dims))
            scope[sparse.values.name] = Value(kind)
        declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        for node in graph.node:
            self._node(node, scope, declared, container, calls)

    def forget_calls(self, first: int) -> None:
        """Say of the nodes from `first` on that it is not known how often they run."""
        for index in range(first, len(self.nodes)):
            self.nodes[index] = msgspec.structs.replace(self.nodes[index], calls=None)

    def _stored(self, tensor: TensorProto) -> Value:
        """Note an initializer, and return it as a value."""
        shape, shared = tuple(tensor.dims), ""
        file = external_file(tensor, self._path)
        if file is not None:
            self._external.append(file)
            place = (file.name, external_range(tensor)[0])
            shared = self._places.setdefault(place, tensor.name)
            shared = "" if shared == tensor.name else shared
        size = stored_bytes(tensor.data_type, int(np.prod(shape, dtype=object)))
        if size is None:
            size = sum(map(len, tensor.string_data))
        self.initializers.append(
            Initializer(
                name=tensor.name,
                dtype=name_of(tensor.data_type),
                shape=shape,
                bytes=size,
                shared=shared,
            )
        )
        kind = helper.make_tensor_type_proto(tensor.data_type, list(shape))
        return Value(kind, _small(tensor, file))

    def _node(
        self,
        node: NodeProto,
        scope: Scope,
        declared: dict[str, TypeProto],
        container: int,
        calls: int | None,
    ) -> None:
        if len(self.nodes) >= MAX_NODES:
            raise InputError(
                f"{self._path} has too many nodes.",
                id="onnx-too-large",
                cause=f"There are more than {MAX_NODES:,} with those of its subgraphs.",
                remedy="Export it without unrolling loops.",
            )
        domain = "" if node.domain == "ai.onnx" else node.domain
        inputs = [scope.get(name, Value()) if name else None for name in node.input]
        attributes = attributes_of(node)
        index = len(self.nodes)
        self.nodes.append(GraphNode(name=node.name, operator=node.op_type))
        if attributes.graphs:
            outputs = subgraphs.outputs_of(
                self, node, inputs, attributes, subgraphs.Place(scope, index, calls)
            )
        else:
            outputs = self._outputs(node, domain, inputs, attributes.values)
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                scope[name] = self._settled(value, declared.get(name))
        self.nodes[index] = GraphNode(
            name=node.name,
            operator=node.op_type,
            domain=domain,
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            input_types=tuple(
                TensorType() if value is None else tensor_type(value.kind) for value in inputs
            ),
            output_types=tuple(
                tensor_type(scope[name].kind) if name in scope else TensorType()
                for name in node.output
            ),
            attributes=plain(attributes.values),
            metadata=metadata_of(node),
            container=container,
            calls=calls,
        )

    def _settled(self, value: Value, declared: TypeProto | None) -> Value:
        """Return the value with the type that the file declares where none is inferred."""
        known = dimensions(value.kind) if value.kind is not None else None
        if declared is None or (known is not None and all(isinstance(n, int) for n in known)):
            return value
        if declared.WhichOneof("value") != "tensor_type":
            return Value(value.kind or declared)
        kind = TypeProto()
        kind.CopyFrom(declared)
        for dimension in kind.tensor_type.shape.dim if dimensions(kind) else ():
            if dimension.dim_param in self._bound:
                dimension.dim_value = self._bound[dimension.dim_param]
        if known is not None and len(known) == len(kind.tensor_type.shape.dim):
            for dimension, size in zip(kind.tensor_type.shape.dim, known, strict=True):
                if isinstance(size, int):
                    dimension.dim_value = size
        return Value(kind, value.data)

    def _outputs(
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
        except (InferenceError, RuntimeError, ValueError, TypeError) as error:
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
    kinds = [value.kind for value in inputs if value is not None and value.kind is not None]
    shapes = [shape for shape in map(dimensions, kinds) if shape is not None]
    sizes = [tuple(n for n in shape if isinstance(n, int)) for shape in shapes]
    if len(shapes) < len(inputs) or list(map(len, sizes)) != list(map(len, shapes)):
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
        value = next(iter(attributes.values()), None)
        if isinstance(value, TensorProto):  # too large to be a shape
            return Value(helper.make_tensor_type_proto(value.data_type, list(value.dims)))
        return None if value is None or isinstance(value, str) else _of_array(np.asarray(value))
    kind = inputs[0].kind if inputs and inputs[0] is not None else None
    shape = None if kind is None else dimensions(kind)
    if shape is None or not all(isinstance(size, int) for size in shape):
        return None
    sizes = np.array(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)
    return _of_array(sizes if operator == "Shape" else np.asarray(np.prod(sizes)))


def _of_array(array: Any) -> Value:
    """Return a value whose elements are known."""
    array = np.asarray(array)
    if array.dtype == np.float64 and array.ndim == 0 or array.size > MAX_ELEMENTS:
        array = array.astype(np.float32) if array.size <= MAX_ELEMENTS else array
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    kind = helper.make_tensor_type_proto(number, list(array.shape))
    return Value(kind, array if array.size <= MAX_ELEMENTS else None)


def _small(tensor: TensorProto, file: Path | None) -> Any | None:
    """Return the elements of a tensor that may decide a shape; None of others."""
    elements = int(np.prod(tuple(tensor.dims), dtype=object))
    if elements > MAX_ELEMENTS or tensor.data_type not in ARRAYS:
        return None
    if file is None:
        return onnx.numpy_helper.to_array(tensor)
    kind = np.dtype(ARRAYS[tensor.data_type])
    with file.open("rb") as stream:
        stream.seek(external_range(tensor)[0])
        data = stream.read(elements * kind.itemsize)
    return np.frombuffer(data, kind).reshape(tuple(tensor.dims))


def _is_small(kind: TypeProto | None) -> bool:
    shape = None if kind is None else dimensions(kind)
    if shape is None or not all(isinstance(size, int) for size in shape):
        return False
    return bool(int(np.prod(shape, dtype=object)) <= MAX_ELEMENTS)
