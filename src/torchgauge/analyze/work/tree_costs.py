"""FLOPs and bytes of the cost pass, put on the operators of the recorded tree."""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import NamedTuple

import msgspec

from torchgauge.analyze.work import lower_bound
from torchgauge.analyze.work.bottleneck import nearest
from torchgauge.records.timeline.node import TreeRow, base_name
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs

_ATTENTION = "attention"  # in the names of all kernels of it
_Key = tuple[int, str, str]  # a layer's row, a phase, an operator without its overload


class _Sum(NamedTuple):
    flops: int
    bytes: int
    unknown: int  # calls


def with_costs(tree: Tree, cost: Cost) -> Tree:
    """Return the tree with FLOPs and bytes on its rows; their sum is the cost's.

    Only attention that is causal counts what its kernel does, the exact lower triangle: a row's
    rate is of work that was done, and the same as in a trace of the step.

    Both name the same layers by call path. In a layer and phase, the calls of an operator share
    what it was counted with. What the recording did not see as that operator (the inside of a fast
    path) is the layer's own; a layer that it did not see at all is part of the one that called it.
    Operators inside a counted one did no work of their own.
    """
    rows = list(tree.rows)
    sums = _sums(tree, cost)
    operators = _operators(rows, sums)
    row_sums: dict[int, _Sum] = {}
    for (layer, phase, name), work in sums.items():
        indices = operators.get((layer, phase, name)) or [layer]
        weights = [rows[index].calls for index in indices]
        for index, *parts in zip(indices, *(_split(part, weights) for part in work), strict=True):
            row_sums[index] = _added(row_sums.get(index), _Sum(*parts))
    counted: list[bool] = []
    for index, row in enumerate(rows):
        inside = row.kind == "operator" and row.parent >= 0 and counted[row.parent]
        counted.append(row.kind == "operator" and (index in row_sums or inside))
        if inside or index in row_sums or row.kind in ("model", "layer"):
            work = row_sums.get(index, _Sum(0, 0, 0))
            has_flops = work.flops or not work.unknown
            rows[index] = msgspec.structs.replace(
                row, flops=work.flops if has_flops else None, bytes=work.bytes, unknown=work.unknown
            )
    return msgspec.structs.replace(tree, rows=tuple(rows))


def rows_of_layers(tree: Tree, cost: Cost) -> list[int]:
    """Return the tree's row of each of `Cost.nodes`: of one not recorded, that of its caller."""
    row_of_layer = {
        (row.parent, row.path): number
        for number, row in reversed(list(enumerate(tree.rows)))
        if row.kind == "layer"
    }
    layer_rows = [0]
    for node in cost.nodes[1:]:
        above = layer_rows[node.parent]
        layer_rows.append(row_of_layer.get((above, node.path), above))
    return layer_rows


def layer_times(tree: Tree, cost: Cost) -> dict[int, float]:
    """Return the seconds of `Cost.nodes`, by index, of those that the tree has."""
    nodes = tree.nodes
    rows = rows_of_layers(tree, cost)
    times = {}
    for number, (row, node) in enumerate(zip(rows, cost.nodes, strict=True)):
        seconds = nodes[row].time
        if seconds is not None and nodes[row].row.path == node.path:
            times[number] = seconds
    return times


def _sums(tree: Tree, cost: Cost) -> dict[_Key, _Sum]:
    layers = rows_of_layers(tree, cost)
    sums: dict[_Key, _Sum] = {}
    for row in cost.rows:
        key = (layers[row.node], row.phase, row.operator)
        causal = _ATTENTION in row.operator  # plain products are done whole
        products = row.causal_matmul_flops if causal else row.matmul_flops
        flops = products + row.vector_flops
        work = _Sum(flops, row.bytes, 0 if row.has_formula else row.calls)
        sums[key] = _added(sums.get(key), work)
    return sums


def _added(before: _Sum | None, work: _Sum) -> _Sum:
    return work if before is None else _Sum(*map(operator.add, before, work))


def _operators(rows: list[TreeRow], counted: Container[_Key]) -> dict[_Key, list[int]]:
    """Return the rows of each counted operator, without those inside another one."""
    operator_rows: dict[_Key, list[int]] = {}
    layers: list[int] = []
    closed: list[bool] = []
    for number, row in enumerate(rows):
        is_operator = row.kind == "operator"
        layers.append(layers[row.parent] if is_operator else number)
        key = (layers[number], row.phase, base_name(row.name))
        inside = is_operator and closed[row.parent]
        counts = is_operator and not inside and key in counted
        if counts:
            operator_rows.setdefault(key, []).append(number)
        closed.append(inside or counts)
    return operator_rows


def _split(total: int, weights: list[int]) -> list[int]:
    """Return integers that add up to the total, in proportion; the first takes what is left."""
    total_weight = sum(weights)
    parts = [total * weight // total_weight if total_weight else 0 for weight in weights]
    parts[0] += total - sum(parts)
    return parts


def with_bounds(
    tree: Tree, cost: Cost, roofs: Roofs, fp32: lower_bound.Fp32 = lower_bound.TORCH_DEFAULT
) -> Tree:
    """Return the tree with `lower_bound` and `bound` on its layers.

    A layer's bound is that of `bottleneck.py`, of its own time with all below it; a layer of which
    an operator or a peak is not known, or that took no time, has none.
    """
    if not roofs.peaks or not roofs.bandwidth:
        return tree
    row_of_layer = rows_of_layers(tree, cost)
    own: dict[int, list[lower_bound.RowBound]] = {}
    calls: dict[int, int] = {}
    for work, row_bound in zip(cost.rows, lower_bound.row_bounds(cost, roofs, fp32), strict=True):
        layer = row_of_layer[work.node]
        own.setdefault(layer, []).append(row_bound)
        calls[layer] = calls.get(layer, 0) + work.calls
    nodes = tree.nodes
    below = [lower_bound.summed(own.get(number, [])) for number in range(len(nodes))]
    rows = list(tree.rows)
    for number in range(len(rows) - 1, -1, -1):
        row, bound, time = rows[number], below[number], nodes[number].time
        if row.kind not in ("model", "layer"):
            continue
        has_bound = time and not bound.at_least and bound.time
        rows[number] = msgspec.structs.replace(
            row,
            lower_bound=round(lower_bound.summed(own.get(number, [])).time * 1e9),
            bound=nearest(bound, time, roofs, calls.get(number, 0)) if has_bound and time else None,
        )
        if row.parent >= 0:
            around = below[row.parent]
            below[row.parent] = lower_bound.LowerBound(
                around.compute + bound.compute,
                around.memory + bound.memory,
                around.at_least or bound.at_least,
            )
            calls[row.parent] = calls.get(row.parent, 0) + calls.get(number, 0)
    return msgspec.structs.replace(tree, rows=tuple(rows))
