"""Stacks and titles as the views of snapshots and of their growth show them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.records.snapshot import Frame, Stack
from torchgauge.report.console.text import Text
from torchgauge.report.content.sheet import Sheet
from torchgauge.visible import one_line, visible

MAX_ROWS = 10
GAP = 2
MIN_LAST_WIDTH = 8  # columns of the last cell


def stack_text(stack: Stack | None) -> Text:
    """Return a stack as text: the innermost frame, then its callers."""
    if stack is None:
        return Text("before the first event", style="dim")
    if not stack.frames:
        return Text("without a stack", style="dim")
    first, *callers = map(frame_text, stack.frames)
    return Text.assemble(first, *((f" ← {caller}", "dim") for caller in callers))


def frame_text(frame: Frame) -> str:
    """Return a frame as file:line and function; C++ has no lines."""
    file = one_line(frame.file).rstrip("/").rsplit("/", 1)[-1]
    place = f"{file}:{frame.line}" if frame.line > 0 else file
    return f"{place} {one_line(frame.name)}".strip()


def drawn(sheet: Sheet, width: int, max_rows: int) -> RenderableType:
    """Return a sheet in `width` columns, its names last, as they take the remaining room."""
    rows = []
    for name, *figures in sheet.rows:
        cells = [
            cell if title else Text(str(cell), style="cyan")
            for cell, title in zip(figures, sheet.names, strict=True)
        ]
        rows.append((*cells, visible(name) if isinstance(name, str) else name))
    columns = (*sheet.names, sheet.first)
    return titled(
        sheet.title, sheet.how, columns, rows, width=width, max_rows=max_rows, notes=sheet.notes
    )


def titled(
    title: str,
    how: str,
    figures: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    width: int,
    max_rows: int = MAX_ROWS,
    notes: Sequence[str] = (),
) -> RenderableType:
    """Return a table of the first rows in `width` columns, how many are left out, and notes.

    The last cell of a row is text that is cut where there is no more room. A figure named "" is a
    drawing, on the left.
    """
    table = Table(
        box=None,
        padding=(0, GAP, 0, 0),
        pad_edge=False,
        header_style="dim",
        title=Text.assemble((title, "bold"), (f"  {how}", "dim italic")),
        title_justify="left",
    )
    table.add_column("", width=0)
    *numbers, last = figures
    listed = rows[:max_rows]
    room = width - GAP
    for column, name in enumerate(numbers):
        # Of themselves all columns would get narrower alike, and figures be cut.
        column_width = max(len(name), *(len(row[column]) for row in listed), 0)
        room -= column_width + GAP
        table.add_column(
            name, justify="right" if name else "left", no_wrap=True, width=column_width
        )
    column_width = max(len(last), *(len(row[-1]) for row in listed), 0)
    column_width = min(column_width, max(room, MIN_LAST_WIDTH))
    table.add_column(last, overflow="ellipsis", no_wrap=True, width=column_width)
    for row in listed:
        table.add_row("", *row)
    footnotes = [f"and {len(rows) - max_rows:,} more"] if len(rows) > max_rows else []
    footnotes += notes
    return Group(
        table, *(Padding(Text(footnote, style="dim"), (0, 0, 0, GAP)) for footnote in footnotes)
    )
