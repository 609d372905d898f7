"""Figures and tables as CSV; unknown values are empty, numbers exact and in SI units."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, cast

from torchgauge.errors import InputError
from torchgauge.model import line_table, tables
from torchgauge.model.comparison import Comparison
from torchgauge.model.count import Count
from torchgauge.model.exported import Csv, Exported
from torchgauge.model.loop import Loop
from torchgauge.model.profile import Profile
from torchgauge.model.snapshot import Growth, Snapshot, SnapshotTable
from torchgauge.model.sweep import Sweep
from torchgauge.model.trace import Trace
from torchgauge.model.verdict import Verdict
from torchgauge.report import comparison_csv, snapshot_csv, sweep_table, trace_csv
from torchgauge.report.stacks import needed_tree

# A spreadsheet would run a cell that starts so as a formula; some take the wide forms too.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def render(record: Exported | Growth, table: Csv | SnapshotTable = "figures") -> str:
    """Return the figures as one row under a header, those of a sweep by cell, or a tree's table.

    Of a verdict and a comparison the figures have a row each. Raises InputError `no-tree`.
    """
    if table == "lines":
        lines = _lines(record)
        return text(lines.columns, (row.values() for row in lines.rows()))
    if isinstance(record, Snapshot):
        return text(*snapshot_csv.rows(record, table))
    if isinstance(record, Growth):
        return text(*snapshot_csv.grown(record))
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
        from torchgauge.report import count

        return count.table(record, "layer" if table == "layers" else "operator")
    found = tables.table(needed_tree(record), table)
    # A table without rows has no columns; its readers want a header.
    names = list(found.columns) or ["name"]
    return text(names, (row.values() for row in found.rows()))


def _lines(record: Exported | Growth) -> tables.Table:
    """Return the lines of traced functions, else those sampled beside a tree."""
    if isinstance(record, Loop) and record.functions is not None:
        return line_table.traced(record.functions)
    tree = record.tree if isinstance(record, Loop | Profile) else None
    if tree is None or not tree.lines:
        raise InputError(
            "The record has no lines of Python.",
            id="figure-absent",
            cause="They were not asked for, or nothing was found.",
            remedy="Use --lines of torchgauge profile or torchgauge run.",
        )
    return line_table.sampled(tree.lines)


def text(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a header and rows; text that a spreadsheet would take for a formula is quoted with '.

    A cell of several numbers has × between them.
    """
    buffer = io.StringIO()
    plain = csv.writer(buffer, lineterminator="\n")
    quoted = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(names)
    for row in rows:
        cells = [_cell(value) for value in row]
        # Python leaves a lone carriage return unquoted, which would end the row for its readers.
        returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoted if returns else plain).writerow(cells)
    return buffer.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(FORMULA):
        return "'" + value
    if isinstance(value, tuple):
        return "×".join(map(str, value))
    return value
