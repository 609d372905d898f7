"""Stacks and titles as the views of snapshots and of their growth show them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from torchgauge.model.snapshot import Frame, Stack
from torchgauge.report.sheet import Sheet
from torchgauge.report.text import Text
from torchgauge.visible import one_line, visible

MOST = 10  # rows
GAP = 2
LEAST = 8  # columns of the last cell


def where(stack: Stack | None) -> Text:
    """Return who allocated: the innermost frame, and who called it as far as there is room."""
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


def drawn(sheet: Sheet, width: int, most: int) -> RenderableType:
    """Return a sheet in `width` columns, its names last, as they take what room there is."""
    rows = []
    for name, *figures in sheet.rows:
        cells = [
            cell if title else Text(str(cell), style="cyan")
            for cell, title in zip(figures, sheet.names, strict=True)
        ]
        rows.append((*cells, visible(name) if isinstance(name, str) else name))
    columns = (*sheet.names, sheet.first)
    return titled(sheet.title, sheet.how, columns, rows, width=width, most=most, notes=sheet.notes)


def titled(
    title: str,
    how: str,
    figures: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    width: int,
    most: int = MOST,
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
    shown = rows[:most]
    left = width - GAP
    for at, name in enumerate(numbers):
        # Of themselves all columns would get narrower alike, and figures be cut.
        wide = max(len(name), *(len(row[at]) for row in shown), 0)
        left -= wide + GAP
        table.add_column(name, justify="right" if name else "left", no_wrap=True, width=wide)
    wide = max(len(last), *(len(row[-1]) for row in shown), 0)
    wide = min(wide, max(left, LEAST))
    table.add_column(last, overflow="ellipsis", no_wrap=True, width=wide)
    for row in shown:
        table.add_row("", *row)
    said = [f"and {len(rows) - most:,} more"] if len(rows) > most else []
    said += notes
    return Group(table, *(Padding(Text(one, style="dim"), (0, 0, 0, GAP)) for one in said))
