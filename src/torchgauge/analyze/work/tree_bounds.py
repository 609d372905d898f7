"""Lower bound and bottleneck of each layer of the tree, by the roofs of its device."""

from __future__ import annotations

import msgspec

from torchgauge.analyze.work.bottleneck import nearest
from torchgauge.analyze.work.lower_bound import (
    TORCH_DEFAULT,
    Fp32,
    LowerBound,
    RowBound,
    row_bounds,
    summed,
)
from torchgauge.analyze.work.tree_costs import rows_of_layers
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs


def with_bounds(tree: Tree, cost: Cost, roofs: Roofs, fp32: Fp32 = TORCH_DEFAULT) -> Tree:
    """Return the tree with `lower_bound` and `bound` on its layers.

    A layer's bound is that of `bottleneck.py`, of its own time with all below it; a layer of which
    an operator or a peak is not known, or that took no time, has none.
    """
    if not roofs.peaks or not roofs.bandwidth:
        return tree
    row_of_layer = rows_of_layers(tree, cost)
    own: dict[int, list[RowBound]] = {}
    calls: dict[int, int] = {}
    for work, row_bound in zip(cost.rows, row_bounds(cost, roofs, fp32), strict=True):
        layer = row_of_layer[work.node]
        own.setdefault(layer, []).append(row_bound)
        calls[layer] = calls.get(layer, 0) + work.calls
    nodes = tree.nodes
    below = [summed(own.get(number, [])) for number in range(len(nodes))]
    rows = list(tree.rows)
    for number in range(len(rows) - 1, -1, -1):
        row, bound, time = rows[number], below[number], nodes[number].time
        if row.kind not in ("model", "layer"):
            continue
        has_bound = time and not bound.at_least and bound.time
        rows[number] = msgspec.structs.replace(
            row,
            lower_bound=round(summed(own.get(number, [])).time * 1e9),
            bound=nearest(bound, time, roofs, calls.get(number, 0)) if has_bound and time else None,
        )
        if row.parent >= 0:
            around = below[row.parent]
            below[row.parent] = LowerBound(
                around.compute + bound.compute,
                around.memory + bound.memory,
                around.at_least or bound.at_least,
            )
            calls[row.parent] = calls.get(row.parent, 0) + calls.get(number, 0)
    return msgspec.structs.replace(tree, rows=tuple(rows))
