"""The cells as rows: one for each, all settings and figures, for CSV."""

from __future__ import annotations

from typing import Any

from torchgauge.records.exported import Csv
from torchgauge.records.sweep import AXES, Cell, Sweep
from torchgauge.report.export.stacks import needed_tree

FIGURES = ("median", "mean", "min", "max", "p50", "p90", "p95", "p99", "first_call")


def table(sweep: Sweep, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows; raises InputError `no-tree` for tables of a tree."""
    if name != "figures":
        needed_tree(sweep)
    cells = rows(sweep)
    return list(cells[0]) if cells else [], [list(row.values()) for row in cells]


def rows(sweep: Sweep) -> list[dict[str, Any]]:
    """Return one mapping per cell, units in its keys; None is unknown or left as it was."""
    return [_row(sweep, index, cell) for index, cell in enumerate(sweep.cells)]


def _row(sweep: Sweep, index: int, cell: Cell) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(cell.settings, name) for name in AXES}
    row |= {"status": cell.status, "reason": cell.reason}
    latency, throughput, memory, cost = cell.latency, cell.throughput, cell.memory, cell.cost
    for name in FIGURES:
        row[f"latency_{name}_s"] = getattr(latency, name, None)
    interval = None if latency is None else latency.interval
    row["latency_median_low_s"] = getattr(interval, "low", None)
    row["latency_median_high_s"] = getattr(interval, "high", None)
    row["processes"] = None if latency is None else len(latency.processes)
    for name in ("calls", "samples", "tokens", "images"):
        row[f"throughput_{name}_per_s"] = getattr(throughput, name, None)
    row["memory_peak_bytes"] = getattr(memory, "peak", None)
    row["memory_rss_peak_bytes"] = getattr(memory, "rss_peak", None)
    row["flops"] = getattr(cost, "flops", None)
    row["traffic_bytes"] = getattr(cost, "bytes", None)
    row["work_at_least"] = getattr(cost, "at_least", None)
    row["duration_s"] = cell.duration
    row["on_front"] = index in sweep.front.cells
    row["best"] = ", ".join(best.metric for best in sweep.best if best.cell == index)
    row["warnings"] = "; ".join(warning.id for warning in cell.warnings)
    return row
