"""A table of lines with figures: as many of its columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table

from torchgauge.report.console.text import Text
from torchgauge.report.content.shortened import shortened, shortened_distinctly
from torchgauge.visible import visible

NAME = 48  # columns of the first column at most, and at least
NARROW = 8
GAP = 2


class Column(NamedTuple):
    """A column of figures by its name; `title` is its header.

    A column without `priority` is always shown; others as there is room, the lowest first.
    """

    name: str
    priority: int | None = None
    title: str | None = None
    left_aligned: bool = False
    style: str = ""
    max_width: int = 99


class Line(NamedTuple):
    """One line: `level` indents its name, `cells` are texts by column, `style` is rich's."""

    level: int
    name: str
    cells: dict[str, str]
    style: str = ""


def fitted_table(
    first: str, lines: Sequence[Line], columns: Sequence[Column], width: int, longest: int = NAME
) -> Table:
    """Return the lines as a table that fits `width`; names that do not are cut, and still differ.

    A column of which no line has a cell is left out; no name is wider than `longest`.
    """
    used_columns = [
        column for column in columns if any(column.name in line.cells for line in lines)
    ]
    widths = {column.name: _width(column, lines) for column in used_columns}
    names = ["  " * line.level + visible(line.name) for line in lines]
    natural = min(max([len(first), *map(cell_len, names)]), longest)
    shown_columns = _fitting_columns(used_columns, widths, width - natural)
    room = width - sum(widths[column.name] + GAP for column in shown_columns)
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(first, no_wrap=True)
    for column in shown_columns:
        grid.add_column(_padded_cell(_title(column), column, widths), style=column.style)
    indents = [2 * line.level for line in lines]
    labels = shortened_distinctly(names, min(natural, max(room, NARROW)), indents)
    for line, label in zip(lines, labels, strict=True):
        cells = (
            _padded_cell(line.cells.get(column.name, ""), column, widths)
            for column in shown_columns
        )
        grid.add_row(Text(label), *cells, style=line.style)
    return grid


def _title(column: Column) -> str:
    return column.name if column.title is None else column.title


def _width(column: Column, lines: Sequence[Line]) -> int:
    cells = (cell_len(visible(line.cells.get(column.name, ""))) for line in lines)
    return min(max([len(_title(column)), *cells]), column.max_width)


def _fitting_columns(columns: Sequence[Column], widths: dict[str, int], room: int) -> list[Column]:
    """Return the columns that fit: those always shown, then others by priority."""
    chosen_names = {column.name for column in columns if column.priority is None}
    room -= sum(widths[name] + GAP for name in chosen_names)
    optional = [column for column in columns if column.priority is not None]
    for column in sorted(optional, key=lambda column: column.priority or 0):
        if widths[column.name] + GAP <= room:
            room -= widths[column.name] + GAP
            chosen_names.add(column.name)
    return [column for column in columns if column.name in chosen_names]


def _padded_cell(text: str, column: Column, widths: dict[str, int]) -> Text:
    """Return a cell padded to its column's width; rich would strip blanks that align units."""
    width = widths[column.name]
    text = shortened(visible(text), width)
    blank = " " * (width - cell_len(text))
    return Text(text + blank if column.left_aligned else blank + text, no_wrap=True)
