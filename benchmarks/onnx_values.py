"""Which operator of a torch model each node of its exported ONNX file comes from, by values alone.

The torch model runs under a dispatch mode that notes of every operator the module that calls it and
some elements of what it makes. The ONNX file runs with all of its values as outputs. A value of the
file that has the elements of an operator's output comes from it; a node whose value has none is a
part of the operator that the next such value comes from. Names, metadata and weights are not read.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchgauge.records.onnx.graph import Graph

SAMPLES = 512
TOLERANCE = 2e-4  # of the largest element: two libraries round in different ways
PRODUCTS = ("convolution", "mm", "bmm", "addmm", "baddbmm", "attention")


@dataclasses.dataclass
class Operator:
    """An operator as it ran: its name, its module, its operands, elements of what it makes."""

    name: str
    layer: str
    inputs: tuple[int, ...]
    elements: list[tuple[int, np.ndarray]]


class Recorder(TorchDispatchMode):
    """Notes the operators of a call of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self._stack = [""]
        self._makers: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no two tensors have one id
        for path, module in model.named_modules():
            if path:
                module.register_forward_pre_hook(lambda *_, path=path: self._stack.append(path))
                module.register_forward_hook(lambda *_: self._stack.pop() and None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and note it."""
        result = func(*args, **(kwargs or {}))
        number = len(self.operators)
        inputs = [self._makers.get(id(leaf)) for leaf in tree_leaves((args, kwargs))]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.operators.append(
            Operator(
                name=func._schema.name,
                layer=self._stack[-1],
                inputs=tuple(maker for maker in inputs if maker is not None),
                elements=[(tensor.numel(), sampled(tensor.numpy())) for tensor in outputs],
            )
        )
        for tensor in outputs:
            self._makers[id(tensor)] = number
            self._alive.append(tensor)
        return result


def recorded(model: nn.Module, value: torch.Tensor) -> list[Operator]:
    """Return the operators of a call."""
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), Recorder(model) as recorder:
        model(value)
    return recorder.operators


def sampled(array: np.ndarray) -> np.ndarray:
    """Return some elements, at places that depend on the number of elements alone."""
    places = np.random.default_rng(array.size).integers(0, max(1, array.size), SAMPLES)
    return np.asarray(array, np.float64).reshape(-1)[places] if array.size else np.zeros(0)


class Origins:
    """The operators that the nodes of a file come from: `of_node` by the node's index, or None."""

    def __init__(self, graph: Graph, operators: list[Operator], values: dict[str, Any]) -> None:
        self.operators = operators
        by_size: defaultdict[int, list[tuple[int, np.ndarray]]] = defaultdict(list)
        for number, operator in enumerate(operators):
            for size, elements in operator.elements:
                by_size[size].append((number, elements))
        self.matches = {
            name: [n for n, other in by_size.get(array.size, []) if _equal(sampled(array), other)]
            for name, array in values.items()
        }
        self._in_file = {number for numbers in self.matches.values() for number in numbers}
        readers: defaultdict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(graph.nodes):
            for name in dict.fromkeys(node.inputs):
                readers[name].append(index)
        self.of_node: list[int | None] = [None] * len(graph.nodes)
        self.also: list[set[str]] = [set() for _ in graph.nodes]
        for index in reversed(range(len(graph.nodes))):
            node = graph.nodes[index]
            own = [n for name in node.outputs for n in self.matches.get(name, [])]
            later = [self.of_node[r] for name in node.outputs for r in readers[name]]
            known = own or [number for number in later if number is not None]
            before = {n for name in node.inputs for n in self.matches.get(name, [])}
            if known and node.outputs[0] in values:
                self.of_node[index] = min(known)
            if own and before & set(own):  # it moves a value: all operators that do are right
                moving = [n for n in own if before & set(operators[n].inputs)]
                self.also[index] = {operators[n].layer for n in moving}
                self.of_node[index] = min(moving, default=None)
            elif own:  # several that compute the same are right
                self.also[index] = {
                    operators[n].layer for n in own if not set(operators[n].inputs) & set(own)
                }

    def operator(self, index: int) -> Operator | None:
        """Return the operator that a node comes from: of several merged ones the product."""
        number = self.of_node[index]
        if number is None:
            return None
        merged = [self.operators[n] for n in self._merged(number)]
        products = [operator for operator in merged if operator.name.endswith(PRODUCTS)]
        return (products or merged)[0]

    def layers(self, index: int) -> set[str]:
        """Return the right layers of a node."""
        operator = self.operator(index)
        return set() if operator is None else {operator.layer, *self.also[index]}

    def _merged(self, number: int) -> Iterator[int]:
        """Yield an operator and those before it of which the file has no value."""
        pending, visited = [number], {number}
        while pending:
            number = pending.pop()
            yield number
            new = set(self.operators[number].inputs) - self._in_file - visited
            visited |= new
            pending += sorted(new)


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    finite = np.isfinite(a) & np.isfinite(b)
    scale = np.abs(b[finite]).max(initial=1e-12)
    return bool(np.array_equal(a[~finite], b[~finite], equal_nan=True)) and bool(
        np.abs(a[finite] - b[finite]).max(initial=0.0) <= TOLERANCE * scale
    )


def values_of(path: Path, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the floating-point values that the nodes of a file make."""
    model = onnx.load(path)
    outputs = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in outputs
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    arrays = zip(names, session.run(names, feed), strict=True)
    return {n: a for n, a in arrays if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
