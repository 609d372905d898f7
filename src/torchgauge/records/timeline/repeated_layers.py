"""Layers as lines of a table: one by itself, or a run of identical ones: "h.0–11 ×12"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterable
from typing import Any, Literal, NamedTuple

from torchgauge.records.timeline.node import Node, own_nodes, sum_of

_NUMBERED = re.compile(r"(.*?)(\d+)")


class RepeatedLayers(NamedTuple):
    """A layer, or consecutive ones of one kind that are shown as one; `root` is their tree's."""

    name: str
    nodes: tuple[Node, ...]
    root: Node

    def sum(self, figure: str) -> Any:
        """Return the sum of a figure of all of them; None where none is known."""
        if len(self.nodes) == 1:  # as most are, in tables of many thousands
            return getattr(self.nodes[0], figure)
        return _sum(getattr(node, figure) for node in self.nodes)

    def own(self, figure: Literal["host", "device"]) -> float | None:
        """Return the seconds of what they do outside of the layers that they call."""
        time: float | None = _sum(sum_of(own_nodes(node), figure) for node in self.nodes)
        return time

    @property
    def clock(self) -> Literal["host", "device"]:
        """Whose time the tree is about: the device's where it has any."""
        return "host" if self.root.device_time is None else "device"

    @property
    def children(self) -> list[RepeatedLayers]:
        """The layers that each of them calls, folded where they repeat."""
        shapes: dict[Hashable, int] = {}
        signatures = [_signature(layer, shapes) for layer in self.nodes[0].layers]
        columns = list(zip(*(node.layers for node in self.nodes), strict=True))
        runs = itertools.groupby(range(len(columns)), key=lambda place: signatures[place])
        groups = []
        for _, group in runs:
            indices = list(group)
            first, last = columns[indices[0]][0].name, columns[indices[-1]][0].name
            name = first if len(indices) == 1 else f"{first}–{_number(last)} ×{len(indices)}"
            nodes = tuple(node for place in indices for node in columns[place])
            if len(self.nodes) > 1 and _is_instance(columns[indices[0]][0]):
                name = nodes[0].row.type  # each of them has numbers of its own
            groups.append(RepeatedLayers(name, nodes, self.root))
        return groups


def single_layers(root: Node) -> list[RepeatedLayers]:
    """Return each layer by itself in calling order, the model first."""
    nodes = (node for node in root.walk() if node.row.kind in ("model", "layer"))
    return [RepeatedLayers(node.name, (node,), root) for node in nodes]


def _sum(values: Iterable[Any]) -> Any:
    known_values = [value for value in values if value is not None]
    return sum(known_values) if known_values else None


def _signature(node: Node, shapes: dict[Hashable, int]) -> Hashable:
    """Return a key that is equal for layers of one run: the name without its number, and shape."""
    named = _NUMBERED.fullmatch(node.name)
    return (named[1] if named else node.name, _shape(node, shapes))


def _shape(root: Node, shapes: dict[Hashable, int]) -> int:
    """Return the number of a layer's shape, new ones noted; layers may be nested thousands deep."""
    shape_ids: dict[int, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        layers = node.layers
        if layers and layers[-1].index not in shape_ids:
            pending += layers
            continue
        pending.pop()
        inside = tuple((_name(child), shape_ids[child.index]) for child in layers)
        shape = (node.row.type, node.calls, node.flops, inside)
        shape_ids[node.index] = shapes.setdefault(shape, len(shapes))
    return shape_ids[root.index]


def _name(node: Node) -> str:
    return node.row.type if _is_instance(node) else node.name


def _is_instance(node: Node) -> bool:
    """Whether it is named by its class and a number, as traces recorded elsewhere do."""
    stem, _, number = node.name.rpartition("_")
    return number.isdecimal() and stem == node.row.type


def _number(name: str) -> str:
    named = _NUMBERED.fullmatch(name)
    return named[2] if named else name
