"""A flat table of layers, operators or kernels, as text and for a notebook."""

from __future__ import annotations

from rich.console import Group, RenderableType

from torchgauge.records.timeline.quantity import FORMATS, quantity_of
from torchgauge.records.timeline.table import Table
from torchgauge.report.console.bar import NAME, fitted_table
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import Text
from torchgauge.report.content import document
from torchgauge.report.content.document import Column, Document, Row
from torchgauge.report.notebook.notebook import fragment
from torchgauge.report.tables.operator_replay import labels

MAX_ROWS = 60  # rows
LONGEST_TEXT = 40  # columns of a text that is not the first
NO_NAME = "(the whole model)"
SHAPES = "Input Shapes"


def render(table: Table, *, html: bool = False) -> str:
    """Return the first rows as text (see `plain`), or all columns of them as HTML."""
    return _html(table) if html else plain(lambda width: view(table, width=width))


def view(table: Table, *, width: int) -> RenderableType:
    """Return the first rows, in as many of the columns, from the left, as `width` has room for."""
    if not len(table):
        return Text("a table without rows", style="dim")
    shown_table = _document_table(table)
    names = [column.key for column in shown_table.columns]
    longest = width if SHAPES in table.columns else NAME
    grid = fitted_table(shown_table.first, shown_table.rows, shown_table.columns, width, longest)
    shown_names = {str(column.header).strip() for column in grid.columns}
    notes = []
    if len(table) > MAX_ROWS:
        notes.append(f"… {len(table) - MAX_ROWS} other rows; rows() has all")
    if absent := [name for name in names if name not in shown_names]:
        notes.append(f"… no room for {', '.join(absent)}; .columns has them")
    return Group(grid, *(Text(note, style="dim") for note in notes))


def _document_table(table: Table) -> document.Table:
    """Return the first rows with the columns that hold anything."""
    first, *names = _nonempty_columns(table)
    columns = [_column(name, index) for index, name in enumerate(names)]
    cells = {name: _cells(table, name) for name in names}
    rows = [
        Row(label, {name: cells[name][index] for name in names})
        for index, label in enumerate(_labels(table, first))
    ]
    return document.Table(first=first, columns=columns, rows=rows, total_rows=len(table))


def _column(name: str, index: int) -> Column:
    """Return a column that is shown before those right of it; a text comes after three figures."""
    text = quantity_of(name) == "text"
    return Column(name, priority=index + 3 * text, left_aligned=text, max_width=LONGEST_TEXT)


def _nonempty_columns(table: Table) -> list[str]:
    """Return the columns with any known value, without shapes, which are in the names."""
    nonempty = [
        name
        for name, values in table.columns.items()
        if any(value not in (None, "") for value in values[:MAX_ROWS])
    ]
    return [name for name in nonempty if name != SHAPES]


def _labels(table: Table, first: str) -> list[str]:
    names = [name or NO_NAME for name in table.columns[first][:MAX_ROWS]]
    shapes = table.columns.get(SHAPES)
    return names if shapes is None else labels(names, shapes[:MAX_ROWS])


def _cells(table: Table, name: str) -> list[str]:
    """Return a column's figures with units; an unknown figure is empty."""
    show = FORMATS[quantity_of(name)]
    return ["" if value is None else show(value) for value in table.columns[name][:MAX_ROWS]]


def _html(table: Table) -> str:
    """Return a fragment of HTML, as `report/page/notebook.py` makes it."""
    if not len(table):
        return fragment(Document("", blocks=[document.Note("a table without rows", "faint")]))
    return fragment(Document("", blocks=[_document_table(table)]))
