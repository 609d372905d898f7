"""The cells as rows: one for each, all settings and figures, for CSV."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.sweep.constraints import has_enough_samples
from torchgauge.records.exported import Csv
from torchgauge.records.sweep import AXES, Cell, Sweep
from torchgauge.report.content import sweep_words as words
from torchgauge.report.export.stacks import needed_tree

FIGURES = ("median", "mean", "min", "max", "p50", "p90", "p95", "p99", "first_call")
"""Figures of the latency; a percentile of too few samples is unknown."""


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
        is_known = has_enough_samples(cell, name)
        row[f"latency_{name}_s"] = getattr(latency, name, None) if is_known else None
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
    row["best"] = ", ".join(words.best_metrics(sweep, index))
    row["not_distinguishable_from_best"] = ", ".join(words.tied_metrics(sweep, index))
    row["warnings"] = "; ".join(warning.id for warning in cell.warnings)
    return row
