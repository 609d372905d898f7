"""Levels of load, shapes, planned settings and cells of sweeps as rows, with all figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from torchgauge.analyze.sweep.constraints import has_enough_samples
from torchgauge.records import rendering
from torchgauge.records.exported import Csv
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.headline.figure import Figure, generation_figures, level_figures
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import FATES, Estimate, Requests
from torchgauge.records.serving.serving import Serving
from torchgauge.records.summary import KEY_SUFFIXES
from torchgauge.records.sweep import AXES, Cell, Sweep
from torchgauge.records.timeline import tables
from torchgauge.report.content import sweep_words as words
from torchgauge.report.export.stacks import needed_tree

LOAD = (
    *("scenario", "arrivals", "rate", "users", "variation", "file"),
    *("body", "tokens", "in_flight"),
)
# Means of readings by column; the network's are of the whole machine.
SERVER = {
    "read": "server_read_bytes_per_s",
    "written": "server_written_bytes_per_s",
    "sent": "machine_sent_bytes_per_s",
    "received": "machine_received_bytes_per_s",
    "gpu": "server_gpu_fraction",
}
REQUESTS = tuple(name for name in Requests.__struct_fields__ if name != "gaps")
_SECONDS = ("scheduled", "sent", "first", "last", "service")


def levels(serving: Serving, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows: of the levels, or of their requests with the level before each.

    Raises InputError `format-unfit` for tables of a tree.
    """
    if name == "requests":
        return _requests(serving)
    if name != "figures":
        raise rendering.unfit("Serving", name)
    rows = [{"level": label, **level_row(level)} for label, level in serving.named_levels]
    return _table(rows, "level")


def _figures(figures: Iterable[Figure], prefix: str) -> dict[str, Any]:
    """Return figures with their intervals, units in the keys."""
    values: dict[str, Any] = {}
    for figure in figures:
        name = figure.name.removeprefix(prefix)
        suffix = "_s" if figure.unit == "s" else KEY_SUFFIXES[figure.unit][0]
        values[name + suffix] = figure.value
        if figure.bounded:
            for end in ("low", "high"):
                values[f"{name}_{end}{suffix}"] = getattr(figure.interval, end, None)
    return values


def _table(rows: list[dict[str, Any]], first: str = "") -> tuple[list[str], list[list[Any]]]:
    """Return names and rows; without rows the name of the first column alone."""
    names = list(rows[0]) if rows else [first] * bool(first)
    return names, [list(values.values()) for values in rows]


def level_row(level: Level) -> dict[str, Any]:
    """Return all of a level in SI units; None is unknown."""
    saturation, client, server = level.saturation, level.client, level.server
    values: dict[str, Any] = {name: level.load.get(name) for name in LOAD}
    values |= {
        "timeout_s": level.load.get("timeout"),
        "duration_s": level.duration,
        "window_begin_s": level.window[0],
        "window_end_s": level.window[1],
        "requests": level.count,
    }
    values |= {fate: level.fates.get(fate, 0) for fate in FATES}
    values |= _figures(level_figures(level), "serving_")
    values["goals"] = level.verdict
    for name in ("fraction", "passed", "needed"):
        values[f"mlperf_{name}"] = getattr(level.early_stopping, name, None)
    values["saturated"] = getattr(saturation, "saturated", None)
    values["backlog_slope_per_s"] = getattr(saturation, "slope", None)
    values["left_out"] = level.left_out
    values["client_limited"] = getattr(client, "limited", None)
    values["client_cpu_s"] = getattr(client, "cpu", None)
    for name, column in SERVER.items():
        readings = getattr(server, name, ())
        values[column] = statistics.fmean(readings) if readings else None
    values["server_gpu_memory_bytes"] = max(getattr(server, "gpu_memory", ()), default=None)
    values["first_saturated"] = getattr(server, "first_saturated", None)
    return values


def _requests(serving: Serving) -> tuple[list[str], list[list[Any]]]:
    """Return every request; a column that no level has is left out."""
    levels = [level.requests for level in serving.levels]
    names = [name for name in REQUESTS if any(getattr(level, name) for level in levels)]
    header = [f"{name}_s" if name in _SECONDS else name for name in names]
    rows: list[list[Any]] = []
    for label, requests in zip(serving.level_names, levels, strict=True):
        columns = [getattr(requests, name) or (None,) * len(requests) for name in names]
        rows += [[label, *values] for values in zip(*columns, strict=True)]
    return ["level", *header], rows


WORK = ("flops", "bytes", "weight_bytes", "cache_bytes", "lower_bound", "bound", "reached")


def shapes(generation: Generation, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows: of the shapes, or of both trees with the stage before each row.

    Raises InputError `no-tree` where it was measured without trees.
    """
    if name == "figures":
        rows = [shape_row(cell) for cell in generation.cells]
    elif not generation.trees or name == "categories":
        needed_tree(generation)
    else:
        rows = [
            {"stage": stage.stage, **node}
            for stage in generation.trees
            for node in tables.table(stage.tree, name).rows()
        ]
    return _table(rows, "name")


def shape_row(cell: GenerationCell) -> dict[str, Any]:
    """Return all of a shape in SI units; None is unknown."""
    values: dict[str, Any] = {**cell.shape, "status": cell.status, "reason": cell.reason}
    values["calls"] = len(cell.timed_calls)
    values |= _figures(generation_figures(cell), "generation_")
    values["cache_formula_bytes"] = getattr(cell.cache, "formula", None)
    values["memory_peak_bytes"] = getattr(cell.memory, "peak", None)
    for stage in ("prefill", "decode"):
        work = cell.work_of(stage)
        for name in WORK:
            unit = "_s" if name == "lower_bound" else ""
            values[f"{stage}_{name}{unit}"] = getattr(work, name, None)
    return values


FRACTIONS = (0.5, 0.9, 0.95, 0.99)


def settings(plan: CapacityPlan, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows of the settings, then of the front.

    Raises InputError `format-unfit` for other tables.
    """
    if name != "figures":
        raise rendering.unfit("CapacityPlan", name)
    rows = [setting_row(plan, setting, "settings") for setting in plan.settings]
    rows += [setting_row(plan, setting, "front") for setting in plan.front]
    return _table(rows, "part")


def setting_row(plan: CapacityPlan, setting: PlannedSetting, part: str) -> dict[str, Any]:
    """Return all of a setting in SI units; None is unknown."""
    values: dict[str, Any] = {
        "part": part,
        "needed": plan.needed is not None and setting == plan.needed,
        "workers": setting.workers,
        "max_batch": setting.max_batch,
        "max_delay_s": setting.max_delay,
        "rate_per_s": setting.rate,
        "stable": setting.stable,
        "goals": setting.verdict,
        "utilization": setting.utilization,
        "mean_batch": setting.mean_batch,
        "price_per_hour": setting.price,
        "price_per_million": setting.price_per_million,
    }
    for name, unit, estimate in _estimates(setting):
        values[f"{name}{unit}"] = None if estimate is None else estimate.value
        for end in ("low", "high"):
            values[f"{name}_{end}{unit}"] = getattr(getattr(estimate, "interval", None), end, None)
    return values


def _estimates(setting: PlannedSetting) -> Iterator[tuple[str, str, Estimate | None]]:
    yield "knee", "_per_s", setting.knee
    for metric in ("latency", "ttft", "tpot"):
        distribution = getattr(setting, metric)
        yield f"{metric}_mean", "_s", None if distribution is None else distribution.mean
        for fraction in FRACTIONS:
            figure = None if distribution is None else distribution.percentile(fraction)
            yield f"{metric}_p{100 * fraction:g}", "_s", figure


FIGURES = ("median", "mean", "min", "max", "p50", "p90", "p95", "p99", "first_call")
"""Figures of the latency; a percentile of too few samples is unknown."""


def cells(sweep: Sweep, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows; raises InputError `no-tree` for tables of a tree."""
    if name != "figures":
        needed_tree(sweep)
    return _table([_cell_row(sweep, index, cell) for index, cell in enumerate(sweep.cells)])


def _cell_row(sweep: Sweep, index: int, cell: Cell) -> dict[str, Any]:
    """Return all of a cell, units in its keys; None is unknown or left as it was."""
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
