"""What torch.compile cost a loop, and what it gained a model's layers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import PurePath

from torchgauge import units
from torchgauge.records.timeline.compilation import ComparedLayers, CompilationCost, EagerComparison
from torchgauge.report.content.document import Column, Row, Table, cells, rows_of
from torchgauge.report.content.section import Row as Line

MOST_ROWS = 8
NOTED_REST = 0.25  # of a step
_COSTS = (
    Column("time", unit="time"),
    Column("count", unit="count", priority=2),
    Column("line", get=lambda cost: PurePath(cost.place).name, left_aligned=True, recorded=True,
           max_width=24, medium="text"),
    Column("place", "line", medium="page"),
    Column("reason", priority=1, left_aligned=True, recorded=True, max_width=70, reserve=45),
)  # fmt: skip
_COMPARED = (
    Column("eager", unit="time"),
    Column("compiled", unit="time",
           get=lambda row: "no kernel" if row.compiled == 0 else row.compiled),
    Column("speed-up", get=lambda row: (ratio := speed_up(row)) and f"{ratio:.2f}×"),
    Column("kernels", unit="count", get=lambda row: len(row.kernels) or None, priority=1),
)  # fmt: skip
NOTES = (
    "Layers of one row share a fused kernel. Compiled times are of kernels: guards, memory and "
    "Python are a row of their own.",
)


def costs_table(costs: Sequence[CompilationCost]) -> Table:
    """Return what compiling cost by its cause, line and reason."""
    return Table(
        title="Compilation", how="measured", first="cause", columns=_COSTS,
        rows=rows_of(_COSTS, costs, operator.attrgetter("cause")), layout="fitted",
        recorded=True, top=MOST_ROWS, key="costs of compilation",
    )  # fmt: skip


def forward_speed_up(comparison: EagerComparison) -> Line:
    """Return how many times as fast the compiled forward pass is."""
    interval = comparison.interval
    spread = "" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}; "
    times = (
        f"{units.time(comparison.eager, 3)} eager, {units.time(comparison.compiled, 3)} compiled"
    )
    return Line("speed-up", f"{comparison.speed_up:.2f}×", f"{spread}forward pass {times}")


def eager_table(comparison: EagerComparison) -> Table:
    """Return eager beside compiled time of layers, the largest first, and of what is in none."""
    layers = [row for row in comparison.rows if row.part == "layers"]
    other_rows = [row for row in comparison.rows if row.part != "layers"]
    listed_rows, omitted_rows = layers[:MOST_ROWS], layers[MOST_ROWS:]
    if omitted_rows:
        other_rows.insert(0, _sum(omitted_rows))
    phases = [
        ComparedLayers(layers=(name,), eager=eager, compiled=compiled)
        for name, (eager, compiled) in comparison.phases.items()
    ]
    rows = [_row(compared_name(row), row) for row in listed_rows]
    rows += [
        _row(f"{len(omitted_rows)} more rows" if row.layers else row.part, row)
        for row in other_rows
    ]
    rows += [_row(f"phase: {row.layers[0]}", row) for row in phases]
    return Table(
        title="Eager beside compiled",
        how=comparison.how,
        first="layers",
        columns=_COMPARED,
        rows=rows,
        layout="fitted",
        recorded=True,
        notes=NOTES + _doubt(comparison),
    )


def _doubt(comparison: EagerComparison) -> tuple[str, ...]:
    pairs = [
        (time, step)
        for row in comparison.rows[-1:]
        for time, step in ((row.eager, comparison.eager), (row.compiled, comparison.compiled))
    ]
    if all(abs(time or 0.0) <= NOTED_REST * step for time, step in pairs):
        return ()
    return (
        "Much of a step is in no row: layers ran in parallel, or other work on the machine "
        "interrupted the bare steps.",
    )


def compared_name(row: ComparedLayers, max_names: int = 2) -> str:
    """Return the names of layers that are compared together, or what is in none."""
    names = [layer or "the model itself" for layer in row.layers[:max_names]]
    omitted = len(row.layers) - len(names)
    return ", ".join(names) + (f" and {omitted} more" if omitted > 0 else "") or row.part


def speed_up(row: ComparedLayers) -> float | None:
    """Return how many times as fast a row's layers are compiled; None of what is in none."""
    return row.eager / row.compiled if row.layers and row.eager and row.compiled else None


def _row(name: str, row: ComparedLayers) -> Row:
    return Row(name, cells(_COMPARED, row))


def _sum(rows: Sequence[ComparedLayers]) -> ComparedLayers:
    compiled = [row.compiled for row in rows if row.compiled is not None]
    return ComparedLayers(
        layers=tuple(layer for row in rows for layer in row.layers),
        eager=sum(row.eager or 0.0 for row in rows),
        compiled=sum(compiled) if compiled else None,
        kernels=tuple(kernel for row in rows for kernel in row.kernels),
    )
