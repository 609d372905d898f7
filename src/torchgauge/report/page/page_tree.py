"""The tree for the page: a column per figure, one entry per node, each text stored once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.records.work.cost import Cost
from torchgauge.report.content.document import Unit
from torchgauge.report.tables.kernel_names import kernel_labels


class Figure(NamedTuple):
    """A figure of the node alone, its title and unit: the page adds up what is below it."""

    key: str
    title: str
    unit: Unit


FIGURES = (
    Figure("device", "device time", "time"),
    Figure("host", "host time", "time"),
    Figure("flops", "FLOPs", "count"),
    Figure("bytes", "bytes moved", "bytes"),
    Figure("allocations", "memory allocated", "bytes"),
    Figure("retained", "kept for backward", "bytes"),
    Figure("parameters", "parameters", "elements"),
)
# Calls without a formula, and calls without bytes: with any, the figures are lower bounds.
LACKING = ("unknown", "calls_without_bytes")
OWN = (*(figure.key for figure in FIGURES), *LACKING)
# Figures of the node with all below it.
INCLUSIVE = ("peak",)
TEXTS = ("name", "path", "type", "phase", "shapes", "bound")


class Texts:
    """An index of texts in the order of their first use; None and "" are −1."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def indices(self, values: Iterable[str | None]) -> list[int]:
        """Return a number for each text."""
        index = self.index
        return [index.setdefault(value, len(index)) if value else -1 for value in values]


def profile_tree(profile: Profile) -> dict[str, Any] | None:
    """Return the tree's columns; without a tree, those of the counted cost."""
    if profile.tree is not None:
        return columns(profile.tree)
    return None if profile.cost is None else counted(profile.cost)


def columns(tree: Tree) -> dict[str, Any]:
    """Return a tree's nodes as columns; a column of unknown values alone is left out."""
    texts, rows = Texts(), tree.rows
    cells = {
        "parent": [row.parent for row in rows],
        "kind": texts.indices(row.kind for row in rows),
        "calls": [row.calls for row in rows],
    }
    for name in TEXTS:
        cells[name] = texts.indices(getattr(row, name) for row in rows)
    for name in (*OWN, *INCLUSIVE):
        values = [getattr(row, name) for row in rows]
        if any(values) or any(value is not None for value in values if name not in LACKING):
            cells[name] = values
    kernels = [(index, row.kernel) for index, row in enumerate(rows) if row.kernel is not None]
    names = list(dict.fromkeys(rows[index].name for index, _ in kernels))
    return {
        "texts": list(texts.index),
        "labels": list(zip(texts.indices(names), kernel_labels(names), strict=True)),
        "columns": cells,
        "figures": _figures(cells),
        "kernels": {
            "node": [index for index, _ in kernels],
            "facts": [_launch(k) for _, k in kernels],
        },
        "step": tree.step,
        "steps": tree.steps,
        "how": tree.how,
    }


def _figures(cells: Container[str]) -> list[Figure]:
    return [figure for figure in FIGURES if figure.key in cells]


def _launch(kernel: Kernel) -> list[str]:
    """Return the launch facts of a kernel for the node's panel."""
    facts = [
        f"{kernel.calls:,} recorded, median {units.time(kernel.quantile(0.5), 3)}, "
        f"longest {units.time(kernel.quantile(1), 3)}"
    ]
    if kernel.grid and kernel.block:
        grid, block = ("×".join(map(str, size)) for size in (kernel.grid, kernel.block))
        facts.append(f"grid {grid}, block {block}")
    if kernel.occupancy is not None:
        limit = f", limited by {kernel.limiter}" if kernel.limiter else ""
        facts.append(f"occupancy {units.percent(kernel.occupancy)}{limit}")
    if kernel.registers is not None:
        facts.append(f"{kernel.registers} registers per thread")
    if kernel.shared_memory is not None:
        facts.append(f"{units.size(kernel.shared_memory)} of shared memory per block")
    if kernel.bandwidth is not None:
        facts.append(f"{units.size(kernel.bandwidth)}/s" + (", pageable" * bool(kernel.pageable)))
    if not kernel.launched:
        facts.append("launched before the recording began")
    return facts


def counted(cost: Cost) -> dict[str, Any]:
    """Return the layers of a count with the operators that each calls itself."""
    texts = Texts()
    names = [node.name for node in cost.nodes] + [row.operator for row in cost.rows]
    operators = len(cost.rows)
    layers: Sequence[str] = ["layer"] * (len(cost.nodes) - 1)
    kinds = ["model", *layers, *["operator"] * operators]
    cells = {
        "parent": [node.parent for node in cost.nodes] + [row.node for row in cost.rows],
        "kind": texts.indices(kinds),
        "calls": [node.calls for node in cost.nodes] + [row.calls for row in cost.rows],
        "name": texts.indices(names),
        "path": texts.indices(node.path for node in cost.nodes) + [-1] * operators,
        "type": texts.indices(node.kind for node in cost.nodes) + [-1] * operators,
        "phase": [-1] * len(cost.nodes) + texts.indices(row.phase for row in cost.rows),
        "flops": [0] * len(cost.nodes)
        + [row.matmul_flops + row.vector_flops if row.has_formula else None for row in cost.rows],
        "bytes": [0] * len(cost.nodes) + [row.bytes for row in cost.rows],
        "unknown": [0] * len(cost.nodes)
        + [0 if row.has_formula else row.calls for row in cost.rows],
    }
    return {
        "texts": list(texts.index),
        "columns": cells,
        "figures": _figures(cells),
        "kernels": {"node": [], "facts": []},
        "step": "training" if cost.backward else "inference",
        "steps": 1,
        "how": cost.how,
    }
