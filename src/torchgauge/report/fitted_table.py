"""A table of lines with figures: as many of its columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table

from torchgauge.report.shortened import shortened, shortened_apart
from torchgauge.report.text import Text
from torchgauge.visible import visible

NAME = 48  # columns of the first column at most, and at least
NARROW = 8
GAP = 2


class Column(NamedTuple):
    """A column of figures by its name; `title` is its header, `most` its width at most.

    `need` None is always shown; others as there is room, the lowest first.
    """

    name: str
    need: int | None = None
    title: str | None = None
    left: bool = False
    style: str = ""
    most: int = 99


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
    told = [column for column in columns if any(column.name in line.cells for line in lines)]
    widths = {column.name: _width(column, lines) for column in told}
    names = ["  " * line.level + visible(line.name) for line in lines]
    natural = min(max([len(first), *map(cell_len, names)]), longest)
    shown = _shown(told, widths, width - natural)
    room = width - sum(widths[column.name] + GAP for column in shown)
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column(first, no_wrap=True)
    for column in shown:
        grid.add_column(_placed(_title(column), column, widths), style=column.style)
    indents = [2 * line.level for line in lines]
    labels = shortened_apart(names, min(natural, max(room, NARROW)), indents)
    for line, label in zip(lines, labels, strict=True):
        cells = (_placed(line.cells.get(column.name, ""), column, widths) for column in shown)
        grid.add_row(Text(label), *cells, style=line.style)
    return grid


def _title(column: Column) -> str:
    return column.name if column.title is None else column.title


def _width(column: Column, lines: Sequence[Line]) -> int:
    cells = (cell_len(visible(line.cells.get(column.name, ""))) for line in lines)
    return min(max([len(_title(column)), *cells]), column.most)


def _shown(columns: Sequence[Column], widths: dict[str, int], room: int) -> list[Column]:
    """Return those that fit: what must be there, then others as there is room."""
    kept = {column.name for column in columns if column.need is None}
    room -= sum(widths[name] + GAP for name in kept)
    for column in sorted((c for c in columns if c.need is not None), key=lambda c: c.need or 0):
        if widths[column.name] + GAP <= room:
            room -= widths[column.name] + GAP
            kept.add(column.name)
    return [column for column in columns if column.name in kept]


def _placed(text: str, column: Column, widths: dict[str, int]) -> Text:
    """Return a cell, padded here: rich would take the blanks that stand where a unit is not."""
    width = widths[column.name]
    text = shortened(visible(text), width)
    blank = " " * (width - cell_len(text))
    return Text(text + blank if column.left else blank + text, no_wrap=True)
