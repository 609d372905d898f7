"""The figures of a run as one row, or the table of its tree; of a trace's ranks likewise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchgauge.records import rendering
from torchgauge.records.exported import Csv, Exported
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.profile import Profile
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.breakdown import Breakdown
from torchgauge.records.trace.trace import RankTrace, Trace
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


def of_trace(trace: Trace, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows: seconds by rank and device, else the ranks' tables with a rank first.

    A table of which some rank has fewer columns is empty there.
    """
    if name == "figures":
        records = [row for rank in trace.ranks for row in _figures(rank)]
    else:
        records = [
            {"rank": rank.rank, **row} for rank in trace.ranks for row in rank.table(name).rows()
        ]
    names = list(dict.fromkeys(name for row in records for name in row)) or ["rank"]
    return names, [[row.get(name) for name in names] for row in records]


def _figures(rank: RankTrace) -> list[dict[str, Any]]:
    common = {"rank": rank.rank, "file": rank.file, "window": rank.window}
    if not rank.times:
        return [common]
    return [
        {**common, "device": device_time.device, **_parts(device_time.breakdown)}
        for device_time in rank.times
    ]


def _parts(breakdown: Breakdown) -> dict[str, Any]:
    work = ("compute", "communication", "exposed_communication", "copies", "exposed_copies")
    causes = ("host_wait", "kernel_wait", "other", "unknown", "outside")
    return {
        "device_window": breakdown.window,
        **{name: getattr(breakdown, name) for name in work},
        "idle": breakdown.idle.total,
        **{f"idle_{cause}": getattr(breakdown.idle, cause) for cause in causes},
        "pieces": breakdown.activities,
    }


def of_parallel(record: Parallel, name: str) -> tuple[list[str], list[list[object]]]:
    """Return names and rows: the figures as one row, layers by part, or collectives.

    Raises InputError `format-unfit`.
    """
    if name == "figures":
        row = record.summary()
        return list(row), [list(row.values())]
    if name == "layers":
        return ["kind", "layer", "part", "bytes"], [
            [kind.name, alive.layer, alive.part, alive.bytes]
            for kind in record.kinds
            for alive in kind.memory.at_peak
        ]
    if name == "operators":
        fields = ["kind", "group", "ranks", "phase", "dtype", "calls", "bytes", "sent", "exposure"]
        return ["rank", *fields], [
            [kind.name, *(getattr(row, field) for field in fields)]
            for kind in record.kinds
            for row in kind.collectives
        ]
    raise rendering.unfit(type(record).__name__, name)
