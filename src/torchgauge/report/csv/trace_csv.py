"""A recorded trace as tables: a row for each rank and device, or each rank's own tables."""

from __future__ import annotations

from typing import Any

from torchgauge.records.exported import Csv
from torchgauge.records.trace.breakdown import Breakdown
from torchgauge.records.trace.trace import RankTrace, Trace


def table(trace: Trace, name: Csv) -> tuple[list[str], list[list[Any]]]:
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
    return {
        "device_window": breakdown.window,
        "compute": breakdown.compute,
        "communication": breakdown.communication,
        "exposed_communication": breakdown.exposed_communication,
        "copies": breakdown.copies,
        "exposed_copies": breakdown.exposed_copies,
        "idle": breakdown.idle.total,
        "idle_host_wait": breakdown.idle.host_wait,
        "idle_kernel_wait": breakdown.idle.kernel_wait,
        "idle_other": breakdown.idle.other + breakdown.idle.outside,
        "pieces": breakdown.activities,
    }
