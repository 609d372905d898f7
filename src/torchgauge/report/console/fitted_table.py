"""A table of lines with figures: as many of its columns as there is room for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table

from torchgauge.report.console.bar import bar
from torchgauge.report.console.shortened import shortened, shortened_distinctly
from torchgauge.report.console.text import Text
from torchgauge.report.content.document import Column, Row, Tone
from torchgauge.visible import visible

NAME = 48  # columns of the first column at most, and at least
NARROW = 8
GAP = 2
BAR = 10


STYLES: dict[Tone, str] = {
    "": "",
    "strong": "bold",
    "faint": "dim",
    "remark": "italic",
    "mark": "cyan",
    "good": "green",
    "bad": "red",
    "doubtful": "yellow",
}


def fitted_table(
    first: str, rows: Sequence[Row], columns: Sequence[Column], width: int, longest: int = NAME
) -> Table:
    """Return the lines as a table that fits `width`; names that do not are cut, and still differ.

    A column of which no line has a cell is left out; no name is wider than `longest`.
    """
    used_columns = [
        dataclasses.replace(column, max_width=min(column.max_width, max(width - column.reserve, 0)))
        for column in columns
        if any(column.key in row.cells for row in rows)
    ]
    widths = {column.key: _width(column, rows) for column in used_columns}
    names = ["  " * row.level + visible(str(row.name)) for row in rows]
    natural = min(max([len(first), *map(cell_len, names)]), longest)
    shown_columns = _fitting_columns(used_columns, widths, width - natural)
    room = width - sum(widths[column.key] + GAP for column in shown_columns)
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(first, no_wrap=True)
    for column in shown_columns:
        grid.add_column(_padded_cell(column.header, column, widths), style=style_of(column))
    indents = [2 * row.level for row in rows]
    labels = shortened_distinctly(names, min(natural, max(room, NARROW)), indents)
    for row, label in zip(rows, labels, strict=True):
        cells = (_padded_cell(cell_text(column, row), column, widths) for column in shown_columns)
        grid.add_row(Text(label), *cells, style=STYLES[row.tone])
    return grid


def cell_text(column: Column, row: Row) -> str:
    """Return a row's text in a column; a share is drawn as a bar."""
    value = row.cells.get(column.key)
    if column.unit == "bar" and isinstance(value, int | float):
        return bar(value, BAR)
    return column.text(row)


def style_of(column: Column) -> str:
    """Return rich's style of a column."""
    return STYLES["mark" if column.drawn and not column.tone else column.tone]


def _width(column: Column, rows: Sequence[Row]) -> int:
    cells = (cell_len(visible(cell_text(column, row))) for row in rows)
    return min(max([len(column.header), *cells]), column.max_width)


def _fitting_columns(columns: Sequence[Column], widths: dict[str, int], room: int) -> list[Column]:
    """Return the columns that fit: those always shown, then others by priority."""
    chosen_names = {column.key for column in columns if column.priority is None}
    room -= sum(widths[name] + GAP for name in chosen_names)
    optional = [column for column in columns if column.priority is not None]
    for column in sorted(optional, key=lambda column: column.priority or 0):
        if widths[column.key] + GAP <= room:
            room -= widths[column.key] + GAP
            chosen_names.add(column.key)
    return [column for column in columns if column.key in chosen_names]


def _padded_cell(text: str, column: Column, widths: dict[str, int]) -> Text:
    """Return a cell padded to its column's width; rich would strip blanks that align units."""
    width = widths[column.key]
    text = visible(text)
    if column.reserve and len(text) > width:
        text = f"{text[: width - 1]}…"  # of code the begin says most
    text = shortened(text, width)
    blank = " " * (width - cell_len(text))
    return Text(text + blank if column.left_aligned or column.drawn else blank + text, no_wrap=True)
