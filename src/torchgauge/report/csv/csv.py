"""Figures and tables as CSV; unknown values are empty, numbers exact and in SI units."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable
from typing import Any

from torchgauge.records import rendering
from torchgauge.records.exported import Csv
from torchgauge.records.profile import Profile
from torchgauge.records.record import Record, encodable
from torchgauge.records.snapshot import SnapshotTable
from torchgauge.records.timeline import tree as line_table
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.table import Table
from torchgauge.report import kinds
from torchgauge.report.content import document
from torchgauge.report.tables import alive_tensors

# A spreadsheet runs a cell that starts with these as a formula; some take the wide forms too.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def render(record: Record, table: Csv | SnapshotTable = "figures") -> str:
    """Return the figures as rows under a header, or a table of the record.

    Raises InputError `no-tree`.
    """
    if table in ("lines", "tensors"):
        flat = _lines(record) if table == "lines" else _tensors(record)
        return text(flat.columns, (row.values() for row in flat.rows()))
    if table == "requests" and type(record).__name__ != "Serving":
        raise rendering.unfit(type(record).__name__, table)
    return text(*(kinds.function(record, "csv", "table") or _first_table)(record, table))


def _first_table(record: Record, name: str) -> tuple[list[str], list[list[Any]]]:
    """Return the rows of the first table of any document, numbers exact and in SI units."""
    blocks = kinds.document(record).blocks
    tables = [block for block in blocks if isinstance(block, document.Table)]
    if name != "figures" or not tables:
        raise rendering.unfit(type(record).__name__, name)
    columns = [column for column in tables[0].text_columns if not column.drawn]
    rows = [
        [str(row.name), *(_plain(row.cells.get(column.key)) for column in columns)]
        for row in tables[0].rows
    ]
    return [tables[0].first or "name", *(column.key for column in columns)], rows


def _plain(value: document.Value) -> Any:
    return value if isinstance(value, int | float | None) else str(value)


def _lines(record: Record) -> Table:
    """Return the lines of traced functions, else those sampled beside a tree."""
    if isinstance(record, Loop) and record.functions is not None:
        return line_table.traced(record.functions)
    if not isinstance(record, Loop | Profile):
        raise rendering.unfit(type(record).__name__, "lines")
    return line_table.sampled(() if record.tree is None else record.tree.lines)


def _tensors(record: Record) -> Table:
    """Return the tensors alive at the peak of a profile's step."""
    if not isinstance(record, Profile):
        raise rendering.unfit(type(record).__name__, "tensors")
    return alive_tensors.table(() if record.memory is None else record.memory.tensors)


def text(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a header and rows; text that a spreadsheet would take for a formula is quoted with '.

    A cell of several numbers has × between them.
    """
    buffer = io.StringIO()
    plain = csv.writer(buffer, lineterminator="\n")
    quoted = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in itertools.chain([names], rows):
        cells = [_cell(value) for value in row]
        # Python leaves a lone carriage return unquoted, which would end the row for its readers.
        returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoted if returns else plain).writerow(cells)
    return buffer.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        value = "×".join(map(str, value))
    if isinstance(value, str):
        return encodable(f"'{value}" if value.startswith(FORMULA) else value)
    return value
