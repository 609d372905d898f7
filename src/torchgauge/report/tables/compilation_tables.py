"""What torch.compile cost a loop, and what it gained a model's layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from torchgauge import units
from torchgauge.records.timeline.compilation import ComparedLayers, CompilationCost, EagerComparison
from torchgauge.report.content.document import Column, Row, Table
from torchgauge.report.content.section import Row as Line

MOST_ROWS = 8
NOTED_REST = 0.25  # of a step
_COSTS = (
    Column("time", unit="time"),
    Column("count", priority=2, unit="count"),
    Column("line", left_aligned=True, recorded=True, max_width=24),
    Column("reason", priority=1, left_aligned=True, recorded=True, max_width=70, reserve=45),
)
_COMPARED = (
    Column("eager", unit="time"),
    Column("compiled", unit="time"),
    Column("speed-up"),
    Column("kernels", priority=1, unit="count"),
)
NOTES = (
    "Layers of one row share a fused kernel. Compiled times are of kernels: guards, memory and "
    "Python are a row of their own.",
)


def costs_table(costs: Sequence[CompilationCost]) -> Table:
    """Return what compiling cost by its cause, line and reason."""
    rows = [
        Row(
            cost.cause,
            {
                "time": cost.time,
                "count": cost.count,
                "line": PurePath(cost.place).name,
                "reason": cost.reason,
            },
        )
        for cost in costs[:MOST_ROWS]
    ]
    return Table(
        title="Compilation",
        how="measured",
        first="cause",
        columns=_COSTS,
        rows=rows,
        layout="fitted",
        recorded=True,
        total_rows=len(costs),
    )


def speed_up(comparison: EagerComparison) -> Line:
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


def _row(name: str, row: ComparedLayers) -> Row:
    ratio = (
        f"{row.eager / row.compiled:.2f}×" if row.layers and row.eager and row.compiled else None
    )
    cells = {
        "eager": row.eager,
        "compiled": "no kernel" if row.compiled == 0 else row.compiled,
        "speed-up": ratio,
        "kernels": len(row.kernels) or None,
    }
    return Row(name, {key: value for key, value in cells.items() if value is not None})


def _sum(rows: Sequence[ComparedLayers]) -> ComparedLayers:
    compiled = [row.compiled for row in rows if row.compiled is not None]
    return ComparedLayers(
        layers=tuple(layer for row in rows for layer in row.layers),
        eager=sum(row.eager or 0.0 for row in rows),
        compiled=sum(compiled) if compiled else None,
        kernels=tuple(kernel for row in rows for kernel in row.kernels),
    )
