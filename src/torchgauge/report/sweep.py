"""A sweep for a terminal: the cells with the best marked, and how rows of batches scale."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.model.sweep import Sweep
from torchgauge.report import sweep_words as words
from torchgauge.report.console import warnings_view
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.plain import plain
from torchgauge.report.text import Text

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
        heading = f"Best where {sweep.where}" if sweep.where else "Best"
        blocks += [
            Text(""),
            Text(heading, style="bold"),
            _pairs([(one.metric, str(one)) for one in words.best(sweep)]),
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
        Column("±", need=1, style="dim"),
        Column("p99", need=3),
        Column("per second", title=f"{words.rate(sweep)}/s"),
        Column("tokens/s", need=2),
        Column("memory"),
        Column("first call", need=4, style="dim"),
        Column("marks", title="", left=True, style="cyan"),
    )
    batched = len({cell.settings.batch for cell in sweep.cells}) > 1
    lines = []
    for series, places in words.rows(sweep).items():
        row = words.named(sweep, series)
        headed = batched and bool(row)
        if headed:
            lines.append(Line(1, row, {}, "bold"))
        for place in places:
            cell = sweep.cells[place]
            name = f"batch {cell.settings.batch}" if batched else row or "as given"
            mark = words.marks(sweep, place)[0] if cell.done else cell.status
            cells = words.figures(cell) | ({"marks": mark} if mark else {})
            lines.append(Line(1 + headed, name, cells, "" if cell.done else "dim"))
    return fitted_table("", lines, columns, width)


def _shortened(reasons: list[tuple[str, str]]) -> list[tuple[str, str]]:
    more = len(reasons) - MOST_REASONS
    rest = [("…", f"{more} more are in the record")] if more > 0 else []
    return reasons[:MOST_REASONS] + rest


def _scaling(sweep: Sweep) -> list[RenderableType]:
    blocks: list[RenderableType] = [
        Text.assemble(("Scaling with the batch", "bold"), ("  estimated", "dim italic"))
    ]
    for found in sweep.scaling:
        if row := words.named(sweep, found.settings):
            blocks.append(Text(f"  {row}", style="bold"))
        blocks.append(_pairs(list(words.scaling(found))))
    return blocks
