"""Which nodes of a file became one node of the graph that a runtime made of it.

An optimiser keeps the names of the values between the nodes that it leaves, or adds to them. So a
node's origins are what the file computes between the values that the node reads and those that it
makes; constants that the optimiser folded belong to none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from torchgauge.records.onnx.graph import Graph, GraphNode

# ONNX Runtime names a node after the value that it makes, when it changes the layout of its values.
_LAYOUT = re.compile(r"_(?:nchwc|nhwc)\Z")
_LAYOUT_DOMAIN = "com.microsoft.nchwc"
_SUM = 3  # the input of a convolution that is added to its product
_MOVES = ("ReorderInput", "ReorderOutput")


def origins(optimised: Graph, original: Graph) -> list[tuple[int, ...]]:
    """Return, for each node of `optimised`, the indices of its origins in `original`."""
    return _Origins(optimised.nodes, original).all()


class _Origins:
    def __init__(self, nodes: Sequence[GraphNode], original: Graph) -> None:
        self.nodes = nodes
        self.original = original.nodes
        self.makers: dict[str, int] = {}
        self.readers: defaultdict[str, list[int]] = defaultdict(list)
        for index, node in enumerate(original.nodes):
            self.makers.update((name, index) for name in node.outputs if name)
            for name in dict.fromkeys(node.inputs):
                self.readers[name].append(index)
        self.constant = _constants(original)
        # What the optimised graph's values are called in the original.
        self.names: dict[str, str] = {}
        self.ends: set[str] = set()

    def all(self) -> list[tuple[int, ...]]:
        ends = [self._ends(node) for node in self.nodes]
        self.ends = self._values_of(ends)
        ends = [
            [self._extended(node, name) for name in names]
            for node, names in zip(self.nodes, ends, strict=True)
        ]
        self.ends = self._values_of(ends)
        assigned: set[int] = set()
        origin_sets = []
        for node, names in zip(self.nodes, ends, strict=True):
            between = set[int]() if node.operator in _MOVES else self._between(node, names)
            origin_sets.append(tuple(sorted(between - assigned)))
            assigned.update(origin_sets[-1])
        return origin_sets

    def _values_of(self, ends: Sequence[Sequence[str]]) -> set[str]:
        """Return the values that nodes make which do more than change a layout."""
        pairs = zip(self.nodes, ends, strict=True)
        return {name for node, names in pairs if node.operator not in _MOVES for name in names}

    def _ends(self, node: GraphNode) -> list[str]:
        """Return the names in the original of what the node makes; it notes them."""
        ends = []
        for position, name in enumerate(node.outputs):
            original_name = name if name in self.makers else ""
            if not original_name and not position:
                original_name = self._by_name(node)
            if original_name:
                self.names[name] = original_name
                ends.append(original_name)
        return ends

    def _by_name(self, node: GraphNode) -> str:
        """Return the value that a node makes, by the node's own name."""
        if node.operator in _MOVES:
            return self.names.get(node.inputs[0], node.inputs[0])
        name = _LAYOUT.sub("", node.name)
        return name if name in self.makers else ""

    def _extended(self, node: GraphNode, name: str) -> str:
        """Return the value after the sum and the activation that a convolution took in.

        Its name and its output remain those of the convolution.
        """
        if node.domain != _LAYOUT_DOMAIN or node.operator != "Conv":
            return name
        steps = ["Add"] if len(node.inputs) > _SUM and node.inputs[_SUM] else []
        steps += [str(node.attributes["activation"])] if "activation" in node.attributes else []
        maker = self.makers.get(name)
        if maker is not None and self.original[maker].operator in steps:
            return name  # it is the last of them already
        for operator in steps:
            readers = self.readers[name]
            if len(readers) != 1 or self.original[readers[0]].operator != operator:
                break
            next_name = self.original[readers[0]].outputs[0]
            if next_name in self.ends:
                break
            name = next_name
            self.names[node.outputs[0]] = name
        return name

    def _between(self, node: GraphNode, ends: Iterable[str]) -> set[int]:
        """Return what the original computes between the values that the node reads and makes."""
        inputs = {self.names.get(name, name) for name in node.inputs}
        pending, visited, between = list(ends), set[str](), set[int]()
        while pending:
            name = pending.pop()
            maker = self.makers.get(name)
            if name in visited or maker is None or self.constant[maker]:
                continue
            visited.add(name)
            if name in inputs or (name in self.ends and name not in ends):
                continue
            if maker not in between:
                between.add(maker)
                pending += self.original[maker].inputs
        return between


def _constants(graph: Graph) -> list[bool]:
    """Return which nodes compute the same in every call."""
    original_name = {tensor.name for tensor in graph.initializers} - set(graph.inputs)
    constant = []
    for node in graph.nodes:
        names = [name for name in node.inputs if name]
        is_constant = all(name in original_name for name in names) and not _draws(node)
        constant.append(is_constant)
        if is_constant:
            original_name.update(node.outputs)
    return constant


def _draws(node: GraphNode) -> bool:
    return node.operator.startswith("Random") or node.operator in ("Bernoulli", "Multinomial")
