"""Layers alike, one after the other, as one line of a tree: "h.0–11 ×12"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable
from typing import Any, NamedTuple

from torchgauge.model.tree import Node

_NUMBERED = re.compile(r"(.*?)(\d+)")


class Alike(NamedTuple):
    """Layers of one kind, one after the other, shown as one."""

    name: str
    nodes: tuple[Node, ...]

    def sum(self, figure: str) -> Any:
        """Return the sum of a figure of all of them; None where none is known."""
        known = [value for node in self.nodes if (value := getattr(node, figure)) is not None]
        return sum(known) if known else None

    @property
    def children(self) -> list[Alike]:
        """The layers that each of them calls, together where they are alike."""
        shapes: dict[Hashable, int] = {}
        likes = [_likeness(layer, shapes) for layer in self.nodes[0].layers]
        columns = list(zip(*(node.layers for node in self.nodes), strict=True))
        places = itertools.groupby(range(len(columns)), key=lambda place: likes[place])
        found = []
        for _, group in places:
            same = list(group)
            first, last = columns[same[0]][0].name, columns[same[-1]][0].name
            name = first if len(same) == 1 else f"{first}–{_number(last)} ×{len(same)}"
            nodes = tuple(node for place in same for node in columns[place])
            if len(self.nodes) > 1 and _is_instance(columns[same[0]][0]):
                name = nodes[0].row.type  # each of them has numbers of its own
            found.append(Alike(name, nodes))
        return found


def _likeness(node: Node, shapes: dict[Hashable, int]) -> Hashable:
    """Return what makes a layer the like of the one before it; one without a number is of none."""
    named = _NUMBERED.fullmatch(node.name)
    return (named[1] if named else node.name, _shape(node, shapes))


def _shape(root: Node, shapes: dict[Hashable, int]) -> int:
    """Return the number of a layer's shape, new ones noted; layers may be nested thousands deep."""
    found: dict[int, int] = {}
    pending = [root]
    while pending:
        node = pending[-1]
        layers = node.layers
        if layers and layers[-1].at not in found:
            pending += layers
            continue
        pending.pop()
        inside = tuple((_name(child), found[child.at]) for child in layers)
        shape = (node.row.type, node.calls, node.flops, inside)
        found[node.at] = shapes.setdefault(shape, len(shapes))
    return found[root.at]


def _name(node: Node) -> str:
    return node.row.type if _is_instance(node) else node.name


def _is_instance(node: Node) -> bool:
    """Whether it is named by its class and a number, as traces recorded elsewhere do."""
    stem, _, number = node.name.rpartition("_")
    return number.isdecimal() and stem == node.row.type


def _number(name: str) -> str:
    named = _NUMBERED.fullmatch(name)
    return named[2] if named else name
