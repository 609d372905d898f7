"""The graph of an ONNX file or an ExecuTorch program: values, nodes, their layers and work."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from torchgauge.records.record import MeasurementWarning, Record

# How a node's layer was found, the surest first. "neighbours" is an estimate; a node with the rule
# "none" has no layer.
LayerRule = Literal["weights", "metadata", "names", "neighbours", "none"]
# What wrote the file.
GraphFormat = Literal["onnx", "executorch"]
Attribute = int | float | str | tuple[int | float | str, ...]


class TensorType(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Element type and shape of a value: "" and None where they were not inferred.

    A dimension is None where it is unknown, and the name of a free dimension of a graph's input
    until `--input` or `--batch` gives its size.
    """

    dtype: str = ""
    shape: tuple[int | str | None, ...] | None = None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The shape where every dimension is known."""
        if self.shape is None:
            return None
        sizes = tuple(size for size in self.shape if isinstance(size, int))
        return sizes if len(sizes) == len(self.shape) else None

    @property
    def elements(self) -> int | None:
        """The number of elements, None where a dimension is unknown."""
        sizes = self.sizes
        return None if sizes is None else math.prod(sizes)


class Initializer(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A tensor that the file stores: a parameter of the model, or a constant of its computation.

    It may be that of a Constant node, with the name of its output.

    `shape` has as many elements as are stored, `bytes` of them; of a sparse tensor the values.
    `shared` names the one before it that is at the same place of a file; `parameter` says whether
    it is one, None where the file does not.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    shared: str = ""
    parameter: bool | None = None


class GraphNode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One node of a graph, of a subgraph or of an expanded function.

    Attributes:
        name: The node's name, which need not be unique, and may be empty.
        operator: Its type, such as "Conv".
        domain: The operator's domain, "" for ai.onnx.
        inputs: Names of values in the operator's order, "" for one that is left out.
        outputs: Likewise.
        input_types: The types of the inputs, in their order.
        output_types: Likewise.
        attributes: Those that are numbers or texts, and lists of them.
        metadata: What the exporter noted of its layer: scopes, classes, namespace.
        layer: The module path of its layer, "" for the model itself, None where no rule finds one.
        layer_type: The class of the layer where the exporter noted it.
        rule: How the layer was found.
        container: The index of the If, Loop or Scan whose subgraph holds it; -1 in the graph.
        calls: How often it runs in one call of the model; None where a value decides that.
        matmul_flops: FLOP of products in all calls; None, like the next five, where the
            operator has no formula or a shape is unknown.
        causal_matmul_flops: The same with causal attention at its exact lower triangle.
        vector_flops: FLOP of elementwise work and reductions.
        integer_ops: Operations on integers.
        bytes: Compulsory traffic.
        estimated: Whether shapes do not tell its work exactly.
    """

    name: str
    operator: str
    domain: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    input_types: tuple[TensorType, ...] = ()
    output_types: tuple[TensorType, ...] = ()
    attributes: dict[str, Attribute] = msgspec.field(default_factory=dict)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    layer: str | None = None
    layer_type: str = ""
    rule: LayerRule = "none"
    container: int = -1
    calls: int | None = 1
    matmul_flops: int | None = None
    causal_matmul_flops: int | None = None
    vector_flops: int | None = None
    integer_ops: int | None = None
    bytes: int | None = None
    estimated: bool = False

    @property
    def flops(self) -> int | None:
        """FLOP in all calls; None where they are unknown."""
        if self.matmul_flops is None or self.vector_flops is None:
            return None
        return self.matmul_flops + self.vector_flops

    @property
    def full_operator(self) -> str:
        """The operator as tables show it: "onnx::Conv", "com.microsoft::FusedConv"."""
        return f"{self.domain or 'onnx'}::{self.operator}"


class Graph(Record, frozen=True, kw_only=True):
    """What an ONNX file computes, its functions expanded and its subgraphs' nodes among the nodes.

    Of an ExecuTorch program the nodes are a method's instructions.

    Attributes:
        format: Which of the two it is.
        name: The name of the file without its suffix.
        producer: The program that wrote the file, with its version.
        opsets: The version of each domain that it imports.
        inputs: Names of the inputs that a call gives.
        outputs: Names of the outputs.
        values: The types of inputs and outputs, by name.
        initializers: The tensors that the file stores.
        nodes: Every node, a container before the nodes of its subgraphs.
        files: The names of all files that hold it, the .onnx file first.
        file_bytes: The size of these files together.
        custom_domains: Domains whose operators need a library of their own to run.
        warnings: What was not understood, such as shapes that do not fit.
    """

    format: GraphFormat = "onnx"
    name: str
    producer: str = ""
    opsets: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, TensorType]
    initializers: tuple[Initializer, ...] = ()
    nodes: tuple[GraphNode, ...] = ()
    files: tuple[str, ...] = ()
    file_bytes: int = 0
    custom_domains: tuple[str, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()


class GraphFacts(Record, frozen=True, kw_only=True):
    """What a count or a profile says of the graph it is about.

    Attributes:
        format: Whether it is an ONNX file, or an ExecuTorch program with its instructions.
        producer: The program that wrote the file, with its version.
        opsets: The version of each domain that it imports.
        nodes: How many nodes there are, those of subgraphs and expanded functions included.
        nodes_by_rule: How many of them each rule found the layer of.
        time_by_rule: Seconds of a call in nodes by that rule; empty where nothing was timed.
        made_parameters: Elements of parameters that have a name of the exporter's, which transposed
            or computed them.
        computed_convolutions: Convolutions with weights that the exporter computed, most of them
            with the batch normalisation after it.
    """

    format: GraphFormat = "onnx"
    producer: str = ""
    opsets: dict[str, int]
    nodes: int
    nodes_by_rule: dict[LayerRule, int]
    time_by_rule: dict[LayerRule, float] = msgspec.field(default_factory=dict)
    made_parameters: int = 0
    computed_convolutions: int = 0
