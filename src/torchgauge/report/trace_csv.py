"""A recorded trace as tables: a row for each rank and device, or each rank's own tables."""

from __future__ import annotations

from typing import Any

from torchgauge.model.breakdown import Breakdown
from torchgauge.model.exported import Csv
from torchgauge.model.trace import RankTrace, Trace


def rows(trace: Trace, table: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows: seconds by rank and device, else the ranks' tables with a rank first.

    A table of which some rank has fewer columns is empty there.
    """
    if table == "figures":
        found = [row for rank in trace.ranks for row in _figures(rank)]
    else:
        found = [
            {"rank": rank.rank, **row} for rank in trace.ranks for row in rank.table(table).rows()
        ]
    names = list(dict.fromkeys(name for row in found for name in row)) or ["rank"]
    return names, [[row.get(name) for name in names] for row in found]


def _figures(rank: RankTrace) -> list[dict[str, Any]]:
    known = {"rank": rank.rank, "file": rank.file, "window": rank.window}
    if not rank.times:
        return [known]
    return [{**known, "device": one.device, **_parts(one.breakdown)} for one in rank.times]


def _parts(one: Breakdown) -> dict[str, Any]:
    return {
        "device_window": one.window,
        "compute": one.compute,
        "communication": one.communication,
        "exposed_communication": one.exposed_communication,
        "copies": one.copies,
        "exposed_copies": one.exposed_copies,
        "idle": one.idle.total,
        "idle_host_wait": one.idle.host_wait,
        "idle_kernel_wait": one.idle.kernel_wait,
        "idle_other": one.idle.other + one.idle.outside,
        "pieces": one.pieces,
    }
