"""The tree as stacks: the path to each node, and the node's own time, work or memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchgauge.errors import InputError
from torchgauge.records.exported import WEIGHTS, Weight
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.size import Count

# The row's figure, and its name in messages and files.
_ROWS = {
    "host": ("host", "time on the host"),
    "device": ("device", "time on the device"),
    "flops": ("flops", "FLOPs"),
    "bytes": ("bytes", "bytes of traffic"),
    "memory": ("allocations", "bytes allocated"),
}

Stack = tuple[str, ...]


def label(weight: Weight) -> str:
    """Return a weight's name for people."""
    return _ROWS[weight][1]


def stacks(record: object, weight: Weight) -> list[tuple[Stack, int]]:
    """Return the stacks with a weight of their own, in calling order, and the weights.

    Raises InputError `no-tree`, and `figure-absent` where all weights would be 0.
    """
    if isinstance(record, Count):
        weighted = _counted(record.cost, weight)
    else:
        tree = needed_tree(record)
        if weight == "time":
            weight = "host" if all(row.device is None for row in tree.rows) else "device"
        weighted = _measured(tree, _ROWS[weight][0])
    nonzero = [(stack, own) for stack, own in weighted if own]
    if not nonzero:
        raise InputError(
            f"The record has no {'time' if weight == 'time' else label(weight)}.",
            id="figure-absent",
            cause="It was not measured, or there was none.",
            remedy=f"Choose another of {', '.join(WEIGHTS)}.",
        )
    return nonzero


def needed_tree(record: object) -> Tree:
    """Return the record's tree; raises InputError `no-tree` where it has none."""
    if isinstance(record, Profile | Loop) and record.tree is not None:
        return record.tree
    remedies: dict[type, str] = {
        Profile: 'Profile with detail="operators" or "kernels".',
        Loop: "Record a whole step: see the warnings of the record.",
        Generation: "Tables of layers, operators and kernels need a run without --no-tree.",
        Count: "A count has tables of layers and operators, no kernels.",
    }
    raise InputError(
        "The record has no tree of what ran.",
        id="no-tree",
        cause="It was made without one, or the probe failed.",
        remedy=remedies.get(type(record), "Use the record of a profile or of a loop."),
    )


def _measured(tree: Tree, figure: str) -> Iterator[tuple[Stack, int]]:
    paths: list[Stack] = []
    for row in tree.rows:
        layer = row.kind in ("model", "layer")
        name = layer_label(row.path or row.name, row.type) if layer else row.name
        paths.append(_child_path(paths, row.parent, name))
        yield paths[-1], getattr(row, figure) or 0


def _counted(cost: Cost, weight: Weight) -> Iterator[tuple[Stack, int]]:
    paths: list[Stack] = []
    for node in cost.nodes:
        paths.append(
            _child_path(paths, node.parent, layer_label(node.path or node.name, node.kind))
        )
    for row in sorted(cost.rows, key=lambda row: row.node):
        work: dict[Any, int] = {"flops": row.matmul_flops + row.vector_flops, "bytes": row.bytes}
        yield (*paths[row.node], row.operator), work.get(weight, 0)


def layer_label(name: str, kind: str) -> str:
    """Return a layer's frame: its name, and its class where that says more."""
    return name if kind in ("", name) else f"{name} ({kind})"


def _child_path(paths: Sequence[Stack], parent: int, name: str) -> Stack:
    return (*(paths[parent] if parent >= 0 else ()), name)
