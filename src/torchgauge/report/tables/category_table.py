"""Time by category of operators and kernels, beside the roofs of the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchgauge import units
from torchgauge.analyze.work.category_times import (
    LARGER_PART,
    OUTSIDE,
    CategoryTime,
    category_times,
)
from torchgauge.records.profile import Profile
from torchgauge.records.timeline import table as flat_table
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.trace import RankTrace
from torchgauge.records.work.roofline import Roofs
from torchgauge.report.content.document import Column, Table, rows_of

MAX_ROWS = 12
MAX_NAMED = 3  # in a sentence
NEARLY_ALL = 0.995
NO_PRECISION = ("communication", "copy", "fill", "layout")  # messages and moves compute nothing


def roofs_of(record: RankTrace | Profile | Loop) -> Roofs | None:
    """Return the roofs of the record's device: of a trace those of its datasheet."""
    if isinstance(record, Profile):
        return None if record.roofline is None else record.roofline.roofs
    return record.roofs if isinstance(record, RankTrace) else None


def of_record(record: RankTrace | Profile | Loop) -> flat_table.Table:
    """Return one row per category in SI units, most time first; empty without a tree."""
    if record.tree is None:
        return flat_table.Table({})
    return flat_table.Table(figures(record.tree, roofs_of(record)))


def figures(tree: Tree, roofs: Roofs | None) -> dict[str, list[Any]]:
    """Return the figures of categories as columns, empty of a tree without operators."""
    rows = times(tree, roofs)
    shown_rows = [] if all(row.name == OUTSIDE for row in rows) else rows
    return {column.key: list(map(column.value, shown_rows)) for column in FIGURES}


def times(tree: Tree, roofs: Roofs | None) -> list[CategoryTime]:
    """Return the categories; roofs are for work on a device, whose kernels say their types."""
    return category_times(tree, roofs if tree.root.device_time is not None else None)


def most_time(tree: Tree) -> list[str]:
    """Return the categories of most time with their shares; none of a tree without operators."""
    rows = times(tree, None)
    if all(row.name == OUTSIDE for row in rows):
        return []
    return [f"{row.name} {units.percent(row.share or 0.0)}" for row in rows[:MAX_NAMED]]


def precision(row: CategoryTime) -> str | None:
    """Return the type in which a category's kernels compute; None where they compute nothing."""
    return None if row.name in NO_PRECISION else row.precision


FIGURES = (
    Column("category", get=lambda row: row.name),
    Column("calls", unit="count"),
    Column("time", unit="time"),
    Column("share", "share of time", "share"),
    Column("flops", "FLOPs", "count", lambda row: row.flops or None),
    Column("flops_time", "FLOP/s are of", "time", lambda row: row.flops_time or None),
    Column("flops_per_second", "FLOP/s", "flop/s"),
    Column("compute_share", "of peak", "share"),
    Column("bytes", unit="bytes", get=lambda row: row.bytes or None),
    Column("bytes_time", "B/s are of", "time", lambda row: row.bytes_time or None),
    Column("bytes_per_second", "B/s", "bytes/s"),
    Column("memory_share", "of memory bandwidth", "share"),
    Column("precision", "type", get=precision),
    Column("tensor_cores", "Tensor Cores, at least", "share"),
)


def _rate(value: float | None, share: float) -> str | None:
    """Return a rate with the share of time that it is of; None where that is the smaller part."""
    if value is None or share < LARGER_PART:
        return None
    return units.count(value, 3) + (f" of {units.percent(share)}" if share < NEARLY_ALL else "")


COLUMNS = (
    Column("time", unit="time"),
    Column("share", unit="share"),
    Column("bar", priority=8, unit="bar", get=lambda row: row.share),
    Column("calls", priority=7, unit="count", get=lambda row: row.calls or None, empty="–"),
    Column("type", priority=3, get=precision, empty="–"),
    Column("TC", priority=4, unit="percent", get=lambda row: row.tensor_cores, empty="–"),
    Column(
        "FLOP/s",
        priority=5,
        get=lambda row: _rate(row.flops_per_second, row.flops_share),
        empty="–",
    ),
    Column("of peak", priority=1, unit="percent", get=lambda row: row.compute_share, empty="–"),
    Column(
        "B/s", priority=6, get=lambda row: _rate(row.bytes_per_second, row.bytes_share), empty="–"
    ),
    Column("of memory", priority=2, unit="percent", get=lambda row: row.memory_share, empty="–"),
)


def categories(tree: Tree, roofs: Roofs | None = None) -> list[Table]:
    """Return the categories of most time, and no table of a tree without operators and kernels.

    Columns of which nothing is known are left out.
    """
    rows = times(tree, roofs)
    if all(row.name == OUTSIDE for row in rows):
        return []
    on_device = tree.root.device_time is not None
    shown_columns = [
        column
        for column in COLUMNS
        if not column.empty or any(column.get(row) is not None for row in rows if column.get)
    ]
    table = Table(
        title="Device time by category" if on_device else "Host time by category",
        how=tree.how, first="category", columns=shown_columns,
        rows=rows_of(shown_columns, rows[:MAX_ROWS]),
        notes=list(_notes(rows, roofs)), total_rows=len(rows), layout="fitted",
    )  # fmt: skip
    return [table]


def _notes(rows: list[CategoryTime], roofs: Roofs | None) -> Iterator[str]:
    if any(row.tensor_cores is not None for row in rows):
        yield "type and TC (time on Tensor Cores, at least): by the kernels' names."
    if any(row.compute_share is not None or row.memory_share is not None for row in rows):
        source = "datasheet" if roofs is not None and roofs.source == "datasheet" else "roofs"
        device = "" if roofs is None else roofs.device
        yield (
            f"of peak, of memory (estimated): rates as shares of the {source} of {device}; work "
            "counted from shapes. A rate above the peak is left out."
        )
    shown_rows = [row for row in rows[:MAX_ROWS] if row.flops_per_second is not None]
    if any(LARGER_PART <= row.flops_share < NEARLY_ALL for row in shown_rows):
        yield "of … %: the share of the category's time that a rate is of."
    for row in shown_rows:
        if row.flops_share < LARGER_PART:
            rate = units.rate(row.flops_per_second, "FLOP", 3)
            yield f"{row.name}: {rate} of {units.percent(row.flops_share)} of the time."
