"""Walk a model's graphs in order, and describe every node with the types of its inputs and outputs.

Types come from onnx's own inference, node by node, with what is known of values that decide shapes
(`small_values`); what the file declares of a value counts where nothing else tells it.
"""

from __future__ import annotations

import contextlib
import math
from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from torchgauge.errors import InputError
from torchgauge.formulas.onnx_kinds import ELEMENTWISE
from torchgauge.readers.onnx import subgraphs
from torchgauge.readers.onnx.contrib_types import contrib_types
from torchgauge.readers.onnx.element_types import ARRAYS, Scope, Value, name_of, stored_bytes
from torchgauge.readers.onnx.model_proto import (
    MAX_NODES,
    OF_FUNCTION,
    external_file,
    external_range,
    load,
    opsets,
    producer,
)
from torchgauge.readers.onnx.small_values import (
    MAX_ELEMENTS,
    OPERATORS,
    attributes_of,
    computed,
    metadata_of,
    plain,
)
from torchgauge.readers.onnx.subgraphs import (
    RequestedShapes,
    dimensions,
    inputs_of,
    resolve,
    sizes_of,
)
from torchgauge.records.onnx.graph import Graph, GraphNode, Initializer, TensorType
from torchgauge.records.record import MeasurementWarning

# Domains whose operators ONNX Runtime has without a library.
BUILT_IN = ("", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft",
            "com.microsoft.nchwc", "com.microsoft.experimental", "com.ms.internal.nhwc",
            "org.pytorch.aten", "ai.onnx.preview")  # fmt: skip

LONGEST_NAME = 4096


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
    _check_names(path, reader, [*scope, *outputs])
    domains = {*BUILT_IN, *(function.domain for function in model.functions)}
    return Graph(
        name=path.stem,
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
        files=tuple(file.relative_to(path.parent).as_posix() for file in files),
        file_bytes=sum(file.stat().st_size for file in files),
        custom_domains=tuple(
            sorted({node.domain for node in reader.nodes if node.domain not in domains})
        ),
        warnings=tuple(reader.inference.warnings),
    )


def _check_names(path: Path, reader: GraphReader, values: list[str]) -> None:
    """Raise InputError `onnx-too-large` for a name that takes long to look for scopes in."""
    names = [*values, *(tensor.name for tensor in reader.initializers)]
    for node in reader.nodes:
        names += (node.name, node.operator, node.domain, *node.inputs, *node.outputs)
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME:
        raise InputError(
            f"{path} has a name of {longest:,} characters.",
            id="onnx-too-large",
            cause=f"Exporters write names of some hundred, and {LONGEST_NAME:,} are read.",
            remedy="Export it again with shorter names.",
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
        self._path = path
        self._bound = bound
        self.inference = Inference(model)
        self._places: dict[object, str] = {}
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

    def store(self, graph: GraphProto) -> None:
        """Note the tensors of a graph that does not run."""
        for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
            self._stored(tensor)
        for node in graph.node:
            self._constant(node)
            for nested in attributes_of(node).graphs.values():
                self.store(nested)

    def forget_calls(self, first: int) -> None:
        """Say of the nodes from `first` on that it is not known how often they run."""
        for index in range(first, len(self.nodes)):
            self.nodes[index] = msgspec.structs.replace(self.nodes[index], calls=None)

    def _constant(self, node: NodeProto) -> None:
        """Note the tensor of a Constant, as which some exporters write all weights.

        A single number is a factor or a bound, and few whole numbers are sizes or axes.
        """
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or not node.output:
            return
        for attribute in node.attribute:
            ignored = MAX_ELEMENTS if attribute.t.data_type == TensorProto.INT64 else 1
            if attribute.HasField("t") and math.prod(attribute.t.dims) > ignored:
                self._stored(attribute.t, node.output[0])

    def _stored(self, tensor: TensorProto, name: str = "") -> Value:
        """Note an initializer, and return it as a value."""
        name = name or tensor.name
        shape, shared = tuple(tensor.dims), ""
        file = external_file(tensor, self._path)
        size = stored_bytes(tensor.data_type, math.prod(shape))
        if size is None:
            size = sum(map(len, tensor.string_data))
        if file is not None:
            self._external.append(file)
        place: object = None
        if tensor.doc_string.startswith(OF_FUNCTION):
            place = tensor.doc_string
        elif file is not None:
            place = (file, external_range(tensor)[0], size)
        if size and place is not None:
            shared = self._places.setdefault(place, name)
            shared = "" if shared == name else shared
        self.initializers.append(
            Initializer(
                name=name, dtype=name_of(tensor.data_type), shape=shape, bytes=size, shared=shared
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
        self._constant(node)
        if node.op_type == "DFT" and not domain:
            attributes.values.update(self.inference.axis_of_transform(inputs, attributes.values))
        index = len(self.nodes)
        self.nodes.append(GraphNode(name=node.name, operator=node.op_type))
        if attributes.graphs:
            outputs = subgraphs.outputs_of(
                self, node, inputs, attributes, subgraphs.Container(scope, index, calls)
            )
        else:
            outputs = self.inference.outputs(node, domain, inputs, attributes.values)
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
        inferred = dimensions(value.kind) if value.kind is not None else None
        if declared is None or (inferred is not None and all(isinstance(n, int) for n in inferred)):
            return value
        if declared.WhichOneof("value") != "tensor_type":
            return Value(value.kind or declared)
        kind = TypeProto()
        kind.CopyFrom(declared)
        for dimension in kind.tensor_type.shape.dim if dimensions(kind) else ():
            if dimension.dim_param in self._bound:
                dimension.dim_value = self._bound[dimension.dim_param]
        if inferred is not None and len(inferred) == len(kind.tensor_type.shape.dim):
            for dimension, size in zip(kind.tensor_type.shape.dim, inferred, strict=True):
                if isinstance(size, int):
                    dimension.dim_value = size
        return Value(kind, value.data)


def _small(tensor: TensorProto, file: Path | None) -> Any | None:
    """Return the elements of a tensor that may decide a shape; None of others."""
    elements = math.prod(tensor.dims)
    if elements > MAX_ELEMENTS or tensor.data_type not in ARRAYS:
        return None
    if file is None:
        return onnx.numpy_helper.to_array(tensor)
    kind = np.dtype(ARRAYS[tensor.data_type])
    with file.open("rb") as stream:
        stream.seek(external_range(tensor)[0])
        data = stream.read(elements * kind.itemsize)
    return np.frombuffer(data, kind).reshape(tuple(tensor.dims))


MAX_WARNINGS = 5
LARGEST_SIZE = 2**63 - 1


class Inference:
    """Infers what comes out of a node of a model, from what goes in.

    Attributes:
        warnings: The first few nodes whose inputs do not fit.
    """

    def __init__(self, model: ModelProto) -> None:
        self.warnings: list[MeasurementWarning] = []
        self._model, self._opsets = model, opsets(model)
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
        if domain or node.op_type not in OPERATORS.split() or not all(map(_is_small, kinds)):
            return values
        arrays = [None if value is None else value.data for value in inputs]
        unknown = any(
            value is not None and array is None for value, array in zip(inputs, arrays, strict=True)
        )
        if unknown or not inputs:
            return values
        results = computed(node, arrays, self._opsets.get("", 1))
        return values if results is None else [_of_array(result) for result in results]

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
            return contrib_types(node, domain, inputs, attributes, self._model)
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
