"""Work on the tree: what the cost pass counted, on the operators that the recording saw."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from torchgauge.model.cost import Cost
from torchgauge.model.tree import Tree, TreeRow, base_name

_Key = tuple[int, str, str]  # a layer's row, a phase, an operator without its overload


class _Sum(NamedTuple):
    flops: int | None  # None: unknown
    bytes: int


def with_costs(tree: Tree, cost: Cost) -> Tree:
    """Return the tree with FLOPs and bytes on its rows; their sum is the cost's.

    Both name the same layers by call path. In a layer and phase, the calls of an operator share
    what it was counted with. What the recording did not see as that operator (the inside of a fast
    path) is the layer's own; a layer that it did not see at all is part of the one that called it.
    Operators inside a counted one did no work of their own.
    """
    rows = list(tree.rows)
    operators = _operators(rows)
    flops: dict[int, int | None] = {}
    moved: dict[int, int] = {}
    for (layer, phase, name), found in _sums(rows, cost).items():
        places = operators.get((layer, phase, name)) or [layer]
        weights = [rows[place].calls for place in places]
        for place, work, size in zip(
            places, _split(found.flops, weights), _split(found.bytes, weights), strict=True
        ):
            before = flops.get(place, 0)
            flops[place] = None if work is None or before is None else before + work
            moved[place] = moved.get(place, 0) + (size or 0)
    counted: list[bool] = []
    for place, row in enumerate(rows):
        inside = row.kind == "operator" and row.parent >= 0 and counted[row.parent]
        counted.append(row.kind == "operator" and (place in flops or inside))
        if place in flops:
            rows[place] = msgspec.structs.replace(row, flops=flops[place], bytes=moved[place])
        elif inside or row.kind in ("model", "layer"):
            rows[place] = msgspec.structs.replace(row, flops=0, bytes=0)
    return msgspec.structs.replace(tree, rows=tuple(rows))


def _sums(rows: list[TreeRow], cost: Cost) -> dict[_Key, _Sum]:
    place = {
        (row.parent, row.path): number
        for number, row in reversed(list(enumerate(rows)))
        if row.kind == "layer"
    }
    layers = [0]
    for node in cost.nodes[1:]:
        above = layers[node.parent]
        layers.append(place.get((above, node.path), above))
    sums: dict[_Key, _Sum] = {}
    for row in cost.rows:
        key = (layers[row.node], row.phase, row.operator)
        before = sums.get(key, _Sum(0, 0))
        known = row.known and before.flops is not None
        flops = (before.flops or 0) + row.matmul_flops + row.vector_flops if known else None
        sums[key] = _Sum(flops, before.bytes + row.bytes)
    return sums


def _operators(rows: list[TreeRow]) -> dict[_Key, list[int]]:
    """Return the outermost rows of each operator in each layer and phase."""
    found: dict[_Key, list[int]] = {}
    layers: list[int] = []
    names: list[frozenset[str]] = []
    for number, row in enumerate(rows):
        operator = row.kind == "operator"
        layers.append(layers[row.parent] if operator else number)
        above = names[row.parent] if operator else frozenset()
        name = base_name(row.name)
        names.append(above | {name} if operator else above)
        if operator and name not in above:
            found.setdefault((layers[number], row.phase, name), []).append(number)
    return found


def _split(total: int | None, weights: list[int]) -> list[int | None]:
    """Return integers that add up to the total, in proportion; the first takes what is left."""
    whole = sum(weights)
    if total is None:
        return [None] * len(weights)
    parts = [total * weight // whole if whole else 0 for weight in weights]
    parts[0] += total - sum(parts)
    return list(parts)
