"""Which nodes of a file became one node of the graph that a runtime made of it.

An optimiser keeps the names of the values between the nodes that it leaves, or adds to them. So a
node's origins are what the file computes between the values that the node reads and those that it
makes; constants that the optimiser folded belong to none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from torchgauge.analyze.onnx.node_tree import TimedNode, main_origin
from torchgauge.analyze.timeline.node_times import NodeTimes
from torchgauge.readers.onnxruntime_profile import RecordedCalls, RecordedNode
from torchgauge.records.onnx.graph import Graph, GraphNode, LayerRule

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


class NodeCounter(NamedTuple):
    """What OpenVINO's counters say of a node in one call; `seconds` None where it did not run.

    `origins` are the names of the file's nodes that it stands for.
    """

    name: str
    operator: str
    kernel: str
    seconds: float | None
    origins: tuple[str, ...]


def timed_nodes(
    recorded: RecordedCalls, times: NodeTimes, optimised: Graph, original: Graph
) -> Iterator[TimedNode]:
    """Yield the recorded nodes with their origins and layers."""
    origins_of = origins(optimised, original)
    kernels: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for number, name, durations in times.kernels:
        kernels.setdefault(number, []).append((name, durations))
    for number, index in enumerate(graph_indices(recorded.nodes, optimised)):
        node = recorded.nodes[number]
        ran = optimised.nodes[index] if index is not None else None
        of_node = origins_of[index] if index is not None else ()
        holder = main_origin(of_node, original) if of_node else ran
        yield TimedNode(
            operator=ran.full_operator if ran is not None else f"onnx::{node.operator}",
            seconds=float(times.seconds[number]),
            calls=int(times.calls[number]),
            origins=of_node,
            layer=None if holder is None else holder.layer,
            rule="none" if holder is None else holder.rule,
            shapes=node.shapes,
            dtype=node.dtype,
            kernels=tuple(kernels.get(number, ())),
            recorded_calls=times.recorded_calls,
        )


def graph_indices(nodes: Sequence[RecordedNode], optimised: Graph) -> list[int | None]:
    """Return the index of each recorded node in the graph that ran."""
    finder = _NodeIndices(optimised.nodes)
    return [finder.index_of(node) for node in nodes]


class _NodeIndices:
    """Finds recorded nodes in the graph that ran: by name and operator, then in their order."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        self._by_name: dict[tuple[str, str], list[int]] = {}
        for index, node in enumerate(nodes):
            self._by_name.setdefault((node.name, node.operator), []).append(index)

    def index_of(self, node: RecordedNode) -> int | None:
        """Return the node's index; one without a name goes by its operator and number."""
        unnamed = node.name == f"{node.operator}_{node.index}"
        for name in (node.name, *([""] if unnamed else [])):
            indices = self._by_name.get((name, node.operator))
            if indices:
                return indices.pop(0) if len(indices) > 1 else indices[0]
        return None


def counted_nodes(counters: Sequence[NodeCounter], graph: Graph, scale: float) -> list[TimedNode]:
    """Return the nodes that OpenVINO ran; one that it added is in the layer of the next one.

    Of several that name a node of the file, that which takes longest has its work.
    """
    numbers: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in (node.name, *node.outputs):
            numbers.setdefault(name, index)
    ran = [counter for counter in counters if counter.seconds is not None]
    claims = [sorted({n for name in c.origins for n in _named(name, numbers)}) for c in ran]
    claimant: dict[int, int] = {}
    for number in sorted(range(len(ran)), key=lambda number: -(ran[number].seconds or 0)):
        for index in claims[number]:
            claimant.setdefault(index, number)
    nodes: list[TimedNode] = []
    layer: str | None = None
    rule: LayerRule = "none"
    for number, counter in reversed(list(enumerate(ran))):
        of_node = claims[number]
        if of_node:
            holder = main_origin(of_node, graph)
            layer, rule = holder.layer, holder.rule
        elif layer is not None:
            rule = "neighbours"
        nodes.append(
            TimedNode(
                operator=f"openvino::{counter.operator} ({counter.kernel})",
                seconds=(counter.seconds or 0.0) * scale,
                origins=tuple(n for n in of_node if claimant[n] == number),
                layer=layer,
                rule=rule,
            )
        )
    return nodes[::-1]


def _named(name: str, numbers: dict[str, int]) -> list[int]:
    """Return the node of this name, or of what comes before what OpenVINO adds to it."""
    while name:
        if name in numbers:
            return [numbers[name]]
        name = name.rpartition("/")[0]
    return []
