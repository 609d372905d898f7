"""The Pareto front: the cells that no other cell dominates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from torchgauge.records.sweep import Cell, Front, Objective

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


def front(cells: Sequence[Cell]) -> Front:
    """Return the Pareto front of the cells that are done, by their estimates.

    An objective of which no cell has a figure is left out; a cell that lacks one of the others is
    not on the front, since nobody knows what it costs.
    """
    costs = {i: _costs(cell) for i, cell in enumerate(cells) if cell.done}
    compared = [k for k in range(len(OBJECTIVES)) if any(c[k] is not None for c in costs.values())]
    complete_costs: dict[int, tuple[float, ...]] = {}
    for i, cost in costs.items():
        values = tuple(value for k in compared if (value := cost[k]) is not None)
        if len(values) == len(compared):
            complete_costs[i] = values
    efficient = [
        i
        for i, cell_costs in complete_costs.items()
        if not any(_dominates(c, cell_costs) for c in complete_costs.values())
    ]
    return Front(objectives=tuple(OBJECTIVES[k] for k in compared), cells=tuple(efficient))


def _costs(cell: Cell) -> tuple[float | None, ...]:
    """Return the objectives in their order, each so that less is better."""
    rate = cell.per_second
    return (
        None if cell.latency is None else cell.latency.median,
        None if rate is None else -rate,
        None if cell.memory is None else float(cell.memory.peak),
    )


def _dominates(other_costs: tuple[float, ...], cell_costs: tuple[float, ...]) -> bool:
    return other_costs != cell_costs and all(
        a <= b for a, b in zip(other_costs, cell_costs, strict=True)
    )
