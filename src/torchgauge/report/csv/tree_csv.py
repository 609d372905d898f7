"""The figures of a run as one row, or the table of its tree."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge.records.exported import Csv, Exported
from torchgauge.records.timeline import tables
from torchgauge.report.export.stacks import needed_tree


def table(record: Exported, name: Csv) -> tuple[Iterable[str], Iterable[Iterable[object]]]:
    """Return names and rows; raises InputError `no-tree` for a record without a tree."""
    if name == "figures":
        row = record.summary()
        return row, [row.values()]
    tree_table = tables.table(needed_tree(record), name)
    # A table without rows has no columns; its readers want a header.
    return list(tree_table.columns) or ["name"], (row.values() for row in tree_table.rows())
