"""The figures of a run as one row, or the table of its tree."""

from __future__ import annotations

from collections.abc import Iterable

from torchgauge.records.exported import Csv, Exported
from torchgauge.records.profile import Profile
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.loop import Loop
from torchgauge.report.export.stacks import needed_tree
from torchgauge.report.tables import category_table


def table(record: Exported, name: Csv) -> tuple[Iterable[str], Iterable[Iterable[object]]]:
    """Return names and rows; raises InputError `no-tree` for a record without a tree."""
    if name == "figures":
        row = record.summary()
        return row, [row.values()]
    tree = needed_tree(record)
    if name == "categories" and isinstance(record, Profile | Loop):
        tree_table = category_table.of_record(record)
    else:
        tree_table = tables.table(tree, name)
    # A table without rows has no columns; its readers want a header.
    return list(tree_table.columns) or ["name"], (row.values() for row in tree_table.rows())
