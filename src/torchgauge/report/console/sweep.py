"""A sweep for a terminal: the cells with the best marked, and how rows of batches scale."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.records.sweep import Sweep
from torchgauge.report.console.console import warnings_view
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.report.content import sweep_words as words

MOST_REASONS = 12
LABEL = 15


def render(sweep: Sweep) -> str:
    """Return the sweep as plain text (see `plain`)."""
    return plain(lambda width: view(sweep, width=width))


def view(sweep: Sweep, *, width: int) -> RenderableType:
    """Return the sweep as something rich prints in `width` columns."""
    title = Text.assemble((words.title(sweep), "bold cyan"), ("  swept", "dim italic"))
    blocks: list[RenderableType] = [title, _pairs(words.facts(sweep)), Text("")]
    blocks += [Text.assemble(("Cells", "bold"), ("  measured", "dim italic")), _cells(sweep, width)]
    if any(cell.done for cell in sweep.cells):
        blocks.append(Padding(Text(words.legend(sweep), style="dim"), (0, 0, 0, 2)))
        heading = f"Best where {sweep.constraints}" if sweep.constraints else "Best"
        blocks += [
            Text(""),
            Text(heading, style="bold"),
            _pairs([(best.metric, str(best)) for best in words.best(sweep)]),
        ]
    if reasons := _shortened(words.reasons(sweep)):
        blocks += [Text(""), Text("Without figures", style="bold"), _pairs(reasons)]
    if sweep.scaling:
        blocks += [Text(""), *_scaling(sweep)]
    if sweep.warnings:
        blocks += [Text(""), warnings_view("Warnings", list(sweep.warnings))]
    if sweep.interrupted:
        blocks += [Text(""), Text("Interrupted before its end.", style="yellow")]
    return Group(*blocks)


def _pairs(pairs: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs:
        table.add_row(f"  {name}", Text(text))
    return table


def _cells(sweep: Sweep, width: int) -> RenderableType:
    columns = (
        Column("median"),
        Column("±", priority=1, style="dim"),
        Column("p99", priority=3),
        Column("per second", title=f"{words.rate(sweep)}/s"),
        Column("tokens/s", priority=2),
        Column("memory"),
        Column("first call", priority=4, style="dim"),
        Column("marks", title="", left_aligned=True, style="cyan"),
    )
    batched = len({cell.settings.batch for cell in sweep.cells}) > 1
    lines = []
    for series, cell_indices in words.rows(sweep).items():
        row = words.named(sweep, series)
        headed = batched and bool(row)
        if headed:
            lines.append(Line(1, row, {}, "bold"))
        for index in cell_indices:
            cell = sweep.cells[index]
            name = f"batch {cell.settings.batch}" if batched else row or "as given"
            mark = words.marks(sweep, index)[0] if cell.done else cell.status
            cells = words.figures(cell) | ({"marks": mark} if mark else {})
            lines.append(Line(1 + headed, name, cells, "" if cell.done else "dim"))
    return fitted_table("", lines, columns, width)


def _shortened(reasons: list[tuple[str, str]]) -> list[tuple[str, str]]:
    omitted_count = len(reasons) - MOST_REASONS
    note = [("…", f"{omitted_count} more are in the record")] if omitted_count > 0 else []
    return reasons[:MOST_REASONS] + note


def _scaling(sweep: Sweep) -> list[RenderableType]:
    blocks: list[RenderableType] = [
        Text.assemble(("Scaling with the batch", "bold"), ("  estimated", "dim italic"))
    ]
    for scaling in sweep.scaling:
        if row := words.named(sweep, scaling.settings):
            blocks.append(Text(f"  {row}", style="bold"))
        blocks.append(_pairs(list(words.scaling(scaling))))
    return blocks
