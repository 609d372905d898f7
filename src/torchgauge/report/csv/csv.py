"""Figures and tables as CSV; unknown values are empty, numbers exact and in SI units."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable
from typing import Any, cast

from torchgauge.records import rendering
from torchgauge.records.comparison import Comparison
from torchgauge.records.exported import Csv, Exported
from torchgauge.records.profile import Profile
from torchgauge.records.record import encodable
from torchgauge.records.snapshot import Growth, Snapshot, SnapshotTable
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline import line_table, tables
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.table import Table
from torchgauge.records.trace.trace import Trace
from torchgauge.records.verdict import Verdict
from torchgauge.records.work.count import Count
from torchgauge.report.content import alive_tensors
from torchgauge.report.csv import comparison_csv, count_csv, snapshot_csv, sweep_table, trace_csv
from torchgauge.report.export.stacks import needed_tree

# A spreadsheet runs a cell that starts with these as a formula; some take the wide forms too.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def render(record: Exported | Growth, table: Csv | SnapshotTable = "figures") -> str:
    """Return the figures as one row under a header, those of a sweep by cell, or a tree's table.

    Of a verdict and a comparison the figures have a row each. Raises InputError `no-tree`.
    """
    if table in ("lines", "tensors"):
        flat = _lines(record) if table == "lines" else _tensors(record)
        return text(flat.columns, (row.values() for row in flat.rows()))
    if isinstance(record, Snapshot):
        return text(*snapshot_csv.rows(record, table))
    if isinstance(record, Growth):
        return text(*snapshot_csv.growth_rows(record))
    table = cast(Csv, table)
    if isinstance(record, Verdict | Comparison):
        return text(*comparison_csv.rows(record, table))
    if isinstance(record, Trace):
        return text(*trace_csv.rows(record, table))
    if table == "figures" and isinstance(record, Sweep):
        rows = sweep_table.rows(record)
        return text(rows[0] if rows else (), (row.values() for row in rows))
    if table == "figures":
        row = record.summary()
        return text(row, [row.values()])
    if isinstance(record, Count) and table != "kernels":
        return text(*count_csv.rows(record, "layer" if table == "layers" else "operator"))
    tree_table = tables.table(needed_tree(record), table)
    # A table without rows has no columns; its readers want a header.
    names = list(tree_table.columns) or ["name"]
    return text(names, (row.values() for row in tree_table.rows()))


def _lines(record: Exported | Growth) -> Table:
    """Return the lines of traced functions, else those sampled beside a tree."""
    if isinstance(record, Loop) and record.functions is not None:
        return line_table.traced(record.functions)
    if not isinstance(record, Loop | Profile):
        raise rendering.unfit(type(record).__name__, "lines")
    return line_table.sampled(() if record.tree is None else record.tree.lines)


def _tensors(record: Exported | Growth) -> Table:
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
