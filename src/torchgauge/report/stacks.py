"""The tree as stacks: who calls whom down to each node, and what the node did itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchgauge.errors import InputError
from torchgauge.model.cost import Cost
from torchgauge.model.count import Count
from torchgauge.model.exported import WEIGHTS, Weight
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.tree import Tree

# The row's figure, and what people call it.
_ROWS = {
    "host": ("host", "time on the host"),
    "device": ("device", "time on the device"),
    "flops": ("flops", "FLOPs"),
    "bytes": ("bytes", "bytes of traffic"),
    "memory": ("allocations", "bytes allocated"),
}

Stack = tuple[str, ...]


def label(weight: Weight) -> str:
    """Return what people call a weight."""
    return _ROWS[weight][1]


def stacks(record: object, weight: Weight) -> list[tuple[Stack, int]]:
    """Return the stacks with something of their own, in calling order, and how much.

    Raises InputError `no-tree`, and `figure-absent` where all weights would be 0.
    """
    if isinstance(record, Count):
        found = _counted(record.cost, weight)
    else:
        tree = needed_tree(record)
        if weight == "time":
            weight = "host" if all(row.device is None for row in tree.rows) else "device"
        found = _measured(tree, _ROWS[weight][0])
    known = [(stack, own) for stack, own in found if own]
    if not known:
        raise InputError(
            f"The record has no {'time' if weight == 'time' else label(weight)}.",
            id="figure-absent",
            cause="It was not measured, or there was none.",
            remedy=f"Choose another of {', '.join(WEIGHTS)}.",
        )
    return known


def needed_tree(record: object) -> Tree:
    """Return the record's tree; raises InputError `no-tree` where it has none."""
    if isinstance(record, Profile | Loop) and record.tree is not None:
        return record.tree
    remedies: dict[type, str] = {
        Profile: 'Profile with detail="operators" or "kernels".',
        Loop: "Record a whole step: see the warnings of the record.",
        Count: "A count has tables of layers and operators, no kernels.",
    }
    raise InputError(
        "The record has no tree of what ran.",
        id="no-tree",
        cause="It was made without one, or the probe failed.",
        remedy=remedies.get(type(record), "Use the record of a profile or of a loop."),
    )


def _measured(tree: Tree, figure: str) -> Iterator[tuple[Stack, int]]:
    above: list[Stack] = []
    for row in tree.rows:
        layer = row.kind in ("model", "layer")
        name = layer_label(row.path or row.name, row.type) if layer else row.name
        above.append(_below(above, row.parent, name))
        yield above[-1], getattr(row, figure) or 0


def _counted(cost: Cost, weight: Weight) -> Iterator[tuple[Stack, int]]:
    above: list[Stack] = []
    for node in cost.nodes:
        above.append(_below(above, node.parent, layer_label(node.path or node.name, node.kind)))
    for row in sorted(cost.rows, key=lambda row: row.node):
        work: dict[Any, int] = {"flops": row.matmul_flops + row.vector_flops, "bytes": row.bytes}
        yield (*above[row.node], row.operator), work.get(weight, 0)


def layer_label(name: str, kind: str) -> str:
    """Return a layer's frame: its name, and its class where that says more."""
    return name if kind in ("", name) else f"{name} ({kind})"


def _below(above: Sequence[Stack], parent: int, name: str) -> Stack:
    return (*(above[parent] if parent >= 0 else ()), name)
