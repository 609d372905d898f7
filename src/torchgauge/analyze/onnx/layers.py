"""The layer of each node of an ONNX graph, by four rules, the surest first.

1. weights: the node alone reads an initializer that is named as a parameter, such as
   `layer1.0.conv1.weight` (or as an alias of one, since exporters store equal parameters once),
   unless 2 or 3 say that a module around that one is called;
2. metadata: the exporter noted the scopes of modules on the node;
3. names: the node is named by its scopes, `/layer1/layer1.0/conv1/Conv`, or it makes a value that a
   node of the original graph makes;
4. neighbours, an estimate: the deepest layer that holds all of what it reads from, or of what reads
   from it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from torchgauge.records.onnx.graph import Graph, GraphNode, LayerRule

# A module's parameter in a state dict; ONNX Runtime's quantiser adds to the last part.
PARAMETER_NAME = re.compile(r"\w+(?:\.\w+)*\.[A-Za-z_]\w*\Z")
# What an optimiser adds to the names of values and nodes that it changes.
_CHANGED = re.compile(r"(?:_nchwc|_nhwc|_transposed?|_token_\d+|_quantized|_output_\d+)+\Z")
_REPLACED = re.compile(r"_(?:reorder|fused).*")
# What a norm is made of, where an exporter writes it out.
_NORM = ("Cast", "Div", "Mul", "Pow", "Reciprocal", "ReduceMean", "Sqrt", "Sub")
# No model has longer or deeper paths; a file of a stranger may.
LONGEST_PATH, DEEPEST_PATH = 1000, 60


class _Layer(NamedTuple):
    path: str
    rule: LayerRule
    type: str = ""


def with_layers(graph: Graph, original: Graph | None = None) -> Graph:
    """Return the graph with the layer of each node, and the rule that found it.

    `original` has the layers of the graph from which an optimiser made this one.
    """
    weights = _by_weights(graph)
    layer_by_name = {} if original is None else _by_output(original)
    repeated = _repeated(graph if original is None else original)
    first_layers: list[_Layer | None] = []
    for index, node in enumerate(graph.nodes):
        noted = _noted(node)
        scope = noted or _named(node, layer_by_name, repeated)
        layer = weights.get(index) or scope
        if original is None and layer is not None and scope is not None and scope.path:
            # A module that reads the weights of one inside it, which is not called.
            layer = scope if layer.path.startswith(f"{scope.path}.") else layer
        layer = None if layer is not None and not is_usable(layer.path) else layer
        if layer is not None and not layer.type and noted is not None and noted.path == layer.path:
            layer = layer._replace(type=noted.type)
        first_layers.append(layer)
    layers = _with_neighbours(graph, first_layers)
    nodes = tuple(
        msgspec.structs.replace(node, layer=None, rule="none")
        if layer is None
        else msgspec.structs.replace(node, layer=layer.path, layer_type=layer.type, rule=layer.rule)
        for node, layer in zip(graph.nodes, layers, strict=True)
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def owners(graph: Graph) -> dict[str, str]:
    """Return the name of a parameter for each value that holds one, aliases included."""
    names = {tensor.name: tensor.name for tensor in graph.initializers}
    for node in graph.nodes:
        if node.operator == "Identity" and not node.domain and node.inputs[:1]:
            source = node.inputs[0]
            if source in names and node.outputs:
                alias = node.outputs[0]
                names[alias] = alias if PARAMETER_NAME.match(alias) else names[source]
    return names


def _by_weights(graph: Graph) -> dict[int, _Layer]:
    """Return the layers of nodes that alone read a parameter's name; of several, the first's."""
    names = owners(graph)
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.nodes):
        if node.operator == "Identity" and node.outputs and node.outputs[0] in names:
            continue  # an alias, or a copy of what is stored
        for name in dict.fromkeys(node.inputs):
            if name in names and PARAMETER_NAME.match(names[name]):
                readers[names[name]].append(index)
    layers: dict[int, _Layer] = {}
    for name, indices in readers.items():
        if len(indices) == 1:
            layers.setdefault(indices[0], _Layer(name.rpartition(".")[0], "weights"))
    return layers


def _noted(node: GraphNode) -> _Layer | None:
    """Return the layer by the exporter's note."""
    scopes = _texts(node.metadata.get("pkg.torch.onnx.name_scopes", ""))
    classes = _texts(node.metadata.get("pkg.torch.onnx.class_hierarchy", ""))
    if len(scopes) >= 2:  # the last is the operator's
        kind = classes[-2] if len(classes) == len(scopes) else ""
        return _Layer(scopes[-2], "metadata", kind.rpartition(".")[2])
    namespace = [part.partition(": ") for part in node.metadata.get("namespace", "").split("/")]
    if len(namespace) >= 2:
        path, _, kind = namespace[-2]
        return _Layer(path.strip(), "metadata", kind.rpartition(".")[2])
    return None


def _texts(text: str) -> list[str]:
    """Return a list of texts as Python writes it."""
    try:
        values = ast.literal_eval(text) if text.startswith("[") else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [value for value in values if isinstance(value, str)]


def _by_output(original: Graph) -> dict[str, _Layer]:
    """Return the layers of the original graph by the names of values and nodes."""
    layer_by_name: dict[str, _Layer] = {}
    for node in original.nodes:
        if node.layer is not None:
            # An estimate stays one, wherever it comes from.
            rule: LayerRule = "neighbours" if node.rule == "neighbours" else "names"
            for name in (node.name, *node.outputs):
                layer_by_name.setdefault(name, _Layer(node.layer, rule, node.layer_type))
    return layer_by_name


def _repeated(graph: Graph) -> dict[str, str]:
    """Return the module's path for each path that the TorchScript exporter numbered.

    It adds `_1`, `_2` to the last scope when a module is called again. A path that owns weights is
    that of a module of this name.
    """
    paths = {path for node in graph.nodes if (path := scope_path(node.name))}
    owned = {name.rpartition(".")[0] for name in owners(graph)}
    modules: dict[str, str] = {}
    for path in sorted(paths - owned, key=lambda path: (len(path), path)):
        base, _, number = path.rpartition("_")
        before = f"{base}_{int(number) - 1}" if number.isdecimal() else ""
        if before and base in paths and (int(number) == 1 or before in modules):
            modules[path] = base
    return modules


def _named(
    node: GraphNode, layer_by_name: Mapping[str, _Layer], repeated: Mapping[str, str]
) -> _Layer | None:
    """Return the layer by the node's outputs and its name."""
    names = [name for name in (*node.outputs, node.name) if name]
    for name in (*names, *map(_before_changes, names)) if layer_by_name else ():
        if name in layer_by_name:
            return layer_by_name[name]
    for name in (node.name, *node.outputs):
        path = scope_path(name)
        if path is not None:
            return _Layer(repeated.get(path, path), "names")
    return None


def _before_changes(name: str) -> str:
    """Return the name without what an optimiser may have added."""
    return _CHANGED.sub("", _REPLACED.sub("", name))


def is_usable(path: str) -> bool:
    """Return whether a model may have this module path."""
    return len(path) <= LONGEST_PATH and path.count(".") < DEEPEST_PATH


def scope_path(name: str) -> str | None:
    """Return the module path in a node's name, None for a name without scopes.

    The TorchScript exporter names a node `/layer1/layer1.0/conv1/Conv`: a module in a list has the
    list's name before its own. Other exporters leave out the first stroke.
    """
    if "/" not in name or len(name) > LONGEST_PATH:
        return None
    path, before = list[str](), ""
    for part in name.removeprefix("/").split("/")[:-1]:
        inside = before and part.startswith(f"{before}.")
        path.append(part[len(before) + 1 :] if inside else part)
        before = part
    return ".".join(path)


def _with_neighbours(graph: Graph, certain_layers: Sequence[_Layer | None]) -> list[_Layer | None]:
    """Return the layers with estimates for the nodes that have none."""
    layers = list(certain_layers)
    links = _Links(graph.nodes)
    owned = {layer.path for layer in layers if layer is not None and layer.rule == "weights"}
    leaves = owned - {path.rpartition(".")[0] for path in owned if "." in path}
    _lend_weights(graph.nodes, links, layers)
    above: list[str | None] = [None] * len(layers)
    below: list[str | None] = [None] * len(layers)
    for index in range(len(layers)):
        above[index] = _reach(layers[index], (above[n] for n in links.makers[index]), leaves)
    for index in reversed(range(len(layers))):
        below[index] = _reach(layers[index], (below[n] for n in links.readers[index]), leaves)
    for index, layer in enumerate(layers):
        near = [path for path in (above[index], below[index]) if path is not None]
        if layer is None and near:
            layers[index] = _Layer(max(near, key=_depth), "neighbours")
    return layers


def _lend_weights(nodes: Sequence[GraphNode], links: _Links, layers: list[_Layer | None]) -> None:
    """Give products the layer of the bias that is added to them, parts of a norm that of its scale.

    A norm that is written out ends with a product with its weight; what only that product and other
    parts of it read is a part.
    """
    scaled = {
        index: layer
        for index, layer in enumerate(layers)
        if layer is not None and layer.rule == "weights" and nodes[index].operator == "Mul"
    }
    for index in reversed(range(len(nodes))):
        readers = links.readers[index]
        if layers[index] is not None or not readers:
            continue
        node, layer = nodes[index], layers[readers[0]]
        lenders = {scaled.get(reader) for reader in readers}
        if len(lenders) == 1 and readers[0] in scaled and _is_part_of_norm(node):
            layers[index] = scaled[index] = scaled[readers[0]]._replace(rule="neighbours")
        elif node.operator in ("MatMul", "Conv") and len(readers) == 1:
            adds = nodes[readers[0]].operator == "Add"
            if adds and layer is not None and layer.rule == "weights":
                layers[index] = layer._replace(rule="neighbours")


def _is_part_of_norm(node: GraphNode) -> bool:
    adds_constant = node.operator == "Add" and any(kind.elements == 1 for kind in node.input_types)
    return node.operator in _NORM or adds_constant


def _reach(layer: _Layer | None, neighbours: Iterable[str | None], leaves: set[str]) -> str | None:
    """Return the layer that a node lends to its neighbours: what calls it, of a leaf with weights.

    A node without a layer passes on the deepest that holds all of its own neighbours.
    """
    if layer is not None:
        return layer.path.rpartition(".")[0] if layer.path in leaves else layer.path
    paths = [path for path in neighbours if path is not None]
    return common(paths) if paths else None


def common(paths: Sequence[str]) -> str:
    """Return the deepest path that holds all of these."""
    parts = [path.split(".") if path else [] for path in paths]
    shared = list[str]()
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


class _Links:
    """Which nodes make what a node reads, and which read what it makes."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        maker: dict[str, int] = {}
        self.makers: list[list[int]] = []
        self.readers: list[list[int]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            makers = [maker[name] for name in dict.fromkeys(node.inputs) if name in maker]
            self.makers.append(makers)
            for other in makers:
                self.readers[other].append(index)
            maker.update((name, index) for name in node.outputs if name)
