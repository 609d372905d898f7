"""A tree's figures by layer, operator and kernel; a row belongs to at most one of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from torchgauge.records.timeline.node import base_name
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.timeline.tree_row import TreeRow


@dataclasses.dataclass
class Figures:
    """The own figures of a layer, operator or kernel: ns, FLOP, bytes; None is unknown."""

    type: str = ""
    time: int | None = None
    flops: int | None = None
    bytes: int | None = None
    calls: int = 0

    def add(self, row: TreeRow, time: int | None) -> None:
        """Add a row's own figures."""
        self.time = _sum(self.time, time)
        self.flops = _sum(self.flops, row.flops)
        self.bytes = _sum(self.bytes, row.bytes)


@dataclasses.dataclass(frozen=True)
class TreeFigures:
    """Figures by layer path, by operator and by kernel; `buckets` is the ns of what is in no layer.

    The times of all layers and `buckets` add up to the step. `shapes` are operators on one shape.
    """

    layers: dict[str, Figures]
    operators: dict[str, Figures]
    shapes: dict[str, Figures]
    kernels: dict[str, Figures]
    buckets: int


def tree_figures(tree: Tree, *, device: bool, steps: int | None = None) -> TreeFigures:
    """Return a tree's figures; times are those of the device, or the host's.

    They are divided by `steps`, those of the tree unless said otherwise.
    """
    layers: dict[str, Figures] = {}
    operators: dict[str, Figures] = {}
    shapes: dict[str, Figures] = {}
    kernels: dict[str, Figures] = {}
    buckets = 0
    homes: list[str | None] = []  # the layer of each row; None in a bucket
    steps = max(1, tree.steps if steps is None else steps)
    for row in tree.rows:
        home = _home(row, homes)
        homes.append(home)
        own = row.device if device else row.host
        time = None if own is None else round(own / steps)
        if home is None:
            buckets += time or 0
        else:
            layers.setdefault(home, Figures()).add(row, time)
        if row.kind in ("model", "layer") and home is not None:
            layers[home].calls += row.calls
            layers[home].type = row.type
        elif row.kind == "operator":
            for figures in _of_operator(row, operators, shapes):
                figures.add(row, time)
                figures.calls += row.calls
        elif row.kind == "kernel":
            figures = kernels.setdefault(row.name, Figures())
            figures.add(row, None if row.device is None else round(row.device / steps))
            figures.calls += row.calls
            if device and row.parent >= 0 and tree.rows[row.parent].kind == "operator":
                for launcher in _of_operator(tree.rows[row.parent], operators, shapes):
                    launcher.time = _sum(launcher.time, time)
    for figures in (*layers.values(), *operators.values(), *shapes.values(), *kernels.values()):
        figures.calls = round(figures.calls / steps)
    return TreeFigures(layers, operators, shapes, kernels, buckets)


def _of_operator(
    row: TreeRow, operators: dict[str, Figures], shapes: dict[str, Figures]
) -> Iterator[Figures]:
    """Yield the operator of a row by name, and by name and shape."""
    name = base_name(row.name)
    yield operators.setdefault(name, Figures())
    yield shapes.setdefault(f"{name} {row.shapes}".rstrip(), Figures())


def _home(row: TreeRow, homes: list[str | None]) -> str | None:
    if row.kind == "bucket":
        return None
    return row.path if row.kind in ("model", "layer") else homes[row.parent]


def _sum(total: int | None, added: int | None) -> int | None:
    return added if total is None else total + (added or 0)
