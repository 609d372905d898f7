"""The tree for the page: a column per figure, one entry per node, names told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchgauge import units
from torchgauge.model.cost import Cost
from torchgauge.model.kernel import Kernel
from torchgauge.model.profile import Profile
from torchgauge.model.tree import Tree

# Figures of the node alone: the page adds up what is below it.
FIGURES = ("host", "device", "flops", "bytes", "allocations", "retained", "parameters")
# How many calls the figures lack, and the bytes alone: with any they are more than is known.
LACKING = ("unknown", "unsaid")
OWN = (*FIGURES, *LACKING)
# Figures of the node with all below it.
WHOLE = ("peak",)
TEXTS = ("name", "path", "type", "phase", "shapes", "bound")


class Texts:
    """Every text once, in the order in which they are met; None and "" are −1."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def of(self, values: Iterable[str | None]) -> list[int]:
        """Return a number for each text."""
        index = self.index
        return [index.setdefault(value, len(index)) if value else -1 for value in values]


def of_profile(profile: Profile) -> dict[str, Any] | None:
    """Return the tree's columns; without a tree, those of what was counted layer by layer."""
    if profile.tree is not None:
        return columns(profile.tree)
    return None if profile.cost is None else counted(profile.cost)


def columns(tree: Tree) -> dict[str, Any]:
    """Return a tree's nodes as columns; a column of unknown values alone is left out."""
    texts, rows = Texts(), tree.rows
    found = {
        "parent": [row.parent for row in rows],
        "kind": texts.of(row.kind for row in rows),
        "calls": [row.calls for row in rows],
    }
    for name in TEXTS:
        found[name] = texts.of(getattr(row, name) for row in rows)
    for name in (*OWN, *WHOLE):
        values = [getattr(row, name) for row in rows]
        if any(values) or any(value is not None for value in values if name not in LACKING):
            found[name] = values
    kernels = [(at, row.kernel) for at, row in enumerate(rows) if row.kernel is not None]
    return {
        "texts": list(texts.index),
        "columns": found,
        "own": [name for name in OWN if name in found],
        "kernels": {"node": [at for at, _ in kernels], "facts": [_launch(k) for _, k in kernels]},
        "step": tree.step,
        "steps": tree.steps,
        "how": tree.how,
    }


def _launch(kernel: Kernel) -> list[str]:
    """Return what the node's panel says of a kernel's launch."""
    found = [
        f"{kernel.calls:,} recorded, median {units.time(kernel.quantile(0.5), 3)}, "
        f"longest {units.time(kernel.quantile(1), 3)}"
    ]
    if kernel.grid and kernel.block:
        grid, block = ("×".join(map(str, size)) for size in (kernel.grid, kernel.block))
        found.append(f"grid {grid}, block {block}")
    if kernel.occupancy is not None:
        limit = f", limited by {kernel.limiter}" if kernel.limiter else ""
        found.append(f"occupancy {units.percent(kernel.occupancy)}{limit}")
    if kernel.registers is not None:
        found.append(f"{kernel.registers} registers per thread")
    if kernel.shared_memory is not None:
        found.append(f"{units.size(kernel.shared_memory)} of shared memory per block")
    if kernel.bandwidth is not None:
        found.append(f"{units.size(kernel.bandwidth)}/s" + (", pageable" * bool(kernel.pageable)))
    if not kernel.launched:
        found.append("launched before the recording began")
    return found


def counted(cost: Cost) -> dict[str, Any]:
    """Return the layers of a count with the operators that each calls itself."""
    texts = Texts()
    names = [node.name for node in cost.nodes] + [row.operator for row in cost.rows]
    operators = len(cost.rows)
    layers: Sequence[str] = ["layer"] * (len(cost.nodes) - 1)
    kinds = ["model", *layers, *["operator"] * operators]
    found = {
        "parent": [node.parent for node in cost.nodes] + [row.node for row in cost.rows],
        "kind": texts.of(kinds),
        "calls": [node.calls for node in cost.nodes] + [row.calls for row in cost.rows],
        "name": texts.of(names),
        "path": texts.of(node.path for node in cost.nodes) + [-1] * operators,
        "type": texts.of(node.kind for node in cost.nodes) + [-1] * operators,
        "phase": [-1] * len(cost.nodes) + texts.of(row.phase for row in cost.rows),
        "flops": [0] * len(cost.nodes)
        + [row.matmul_flops + row.vector_flops if row.known else None for row in cost.rows],
        "bytes": [0] * len(cost.nodes) + [row.bytes for row in cost.rows],
        "unknown": [0] * len(cost.nodes) + [0 if row.known else row.calls for row in cost.rows],
    }
    return {
        "texts": list(texts.index),
        "columns": found,
        "own": ["flops", "bytes", "unknown"],
        "kernels": {"node": [], "facts": []},
        "step": "training" if cost.backward else "inference",
        "steps": 1,
        "how": cost.how,
    }
