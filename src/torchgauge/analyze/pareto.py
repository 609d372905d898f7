"""The cells worth choosing from: none other is better in one objective and as good in the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from torchgauge.model.sweep import Cell, Front, Objective

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


def front(cells: Sequence[Cell]) -> Front:
    """Return the Pareto front of the cells that are done, by their estimates.

    An objective of which no cell has a figure is left out; a cell that lacks one of the others is
    not on the front, since nobody knows what it costs.
    """
    costs = {i: _costs(cell) for i, cell in enumerate(cells) if cell.done}
    told = [k for k in range(len(OBJECTIVES)) if any(c[k] is not None for c in costs.values())]
    known: dict[int, tuple[float, ...]] = {}
    for i, cost in costs.items():
        values = tuple(value for k in told if (value := cost[k]) is not None)
        if len(values) == len(told):
            known[i] = values
    kept = [i for i, mine in known.items() if not any(_beats(c, mine) for c in known.values())]
    return Front(objectives=tuple(OBJECTIVES[k] for k in told), cells=tuple(kept))


def _costs(cell: Cell) -> tuple[float | None, ...]:
    """Return the objectives in their order, each so that less is better."""
    rate = cell.per_second
    return (
        None if cell.latency is None else cell.latency.median,
        None if rate is None else -rate,
        None if cell.memory is None else float(cell.memory.peak),
    )


def _beats(other: tuple[float, ...], mine: tuple[float, ...]) -> bool:
    return other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
