"""The data of a sweep's page: the cells, the front, and points with lines of how rows scale.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.analyze.sweep.constraints import has_enough_samples, parse
from torchgauge.errors import InputError
from torchgauge.records.sweep import AXES, Cell, Fit, Scaling, Sweep
from torchgauge.records.verdict import Limit
from torchgauge.report.content import sweep_words as words
from torchgauge.report.page.page_document import figure, first_screen
from torchgauge.report.page.page_shorter import known_ns

# Steps in which a fit's band is drawn, from the smallest batch to twice the largest.
STEPS = 24


def overview(sweep: Sweep) -> dict[str, Any]:
    """Return the first screen of a sweep."""
    return first_screen(
        ([name, text, ""] for name, text in words.facts(sweep)),
        map(_card, words.best(sweep)),
        recorded_warnings=sweep.all_warnings,
        created=sweep.environment.created,
        interrupted=sweep.interrupted,
    )


def _card(best: words.BestWords) -> dict[str, str]:
    label = f"best {best.metric}" + (" (not proven)" if best.figure and not best.cell else "")
    note = ", ".join(filter(None, (best.cell, *best.notes)))
    return figure(label, best.figure or "unknown", note, view="cells")


def cells(sweep: Sweep) -> dict[str, Any]:
    """Return every cell with its settings and figures, and the axes of which values differ."""
    varying = [name for name in AXES if len({getattr(c.settings, name) for c in sweep.cells}) > 1]
    rows = [_cell(sweep, place, cell) for place, cell in enumerate(sweep.cells)]
    return {"axes": varying, "rate": words.rate(sweep), "rows": rows, "where": sweep.constraints}


def _cell(sweep: Sweep, place: int, cell: Cell) -> dict[str, Any]:
    latency = cell.latency
    interval = None if latency is None else latency.interval
    return {
        "label": cell.settings.label,
        "series": cell.settings.series.label,
        "settings": {name: getattr(cell.settings, name) for name in AXES},
        "batch": cell.batch,
        "status": cell.status,
        "reason": cell.reason,
        "median": known_ns(None if latency is None else latency.median),
        "low": known_ns(None if interval is None else interval.low),
        "high": known_ns(None if interval is None else interval.high),
        "p99": known_ns(latency.p99 if latency and has_enough_samples(cell, "p99") else None),
        "first_call": known_ns(None if latency is None else latency.first_call),
        "rate": cell.per_second,
        "memory": None if cell.memory is None else cell.memory.peak,
        "flops": None if cell.cost is None else cell.cost.flops,
        "front": place in sweep.front.cells,
        "best": words.best_metrics(sweep, place),
        "tied": words.tied_metrics(sweep, place),
        "warnings": [warning.id for warning in cell.warnings],
    }


def pareto(sweep: Sweep) -> dict[str, Any] | None:
    """Return the front: its objectives and cells, by their places, fastest first; None if empty."""
    if not sweep.front.cells:
        return None
    order = sorted(sweep.front.cells, key=lambda place: _median(sweep.cells[place]))
    return {
        "objectives": [words.OBJECTIVE_NAMES[name] for name in sweep.front.objectives],
        "limits": _limits(sweep),
        "cells": order,
    }


def _median(cell: Cell) -> float:
    return 0.0 if cell.latency is None else cell.latency.median


def scaling(sweep: Sweep) -> list[dict[str, Any]] | None:
    """Return each row of batches: measured points, the line and its band, and what fits."""
    limits = _limits(sweep)
    curves = [
        {
            "series": row.settings.series.label,
            "words": [list(pair) for pair in words.scaling(row)],
            "latency": _fit(row.latency, 1e9, _on("time", limits)),
            "memory": _fit(row.memory, 1.0, [*_on("bytes", limits), *_capacity(row)]),
        }
        for row in sweep.scaling
    ]
    return curves or None


def _limits(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the limits that cells had to keep, each on the axis of its metric."""
    try:
        limits = parse(sweep.constraints)
    except InputError:  # a file that was edited by hand: its text stands above the table
        return []
    return [_limit(limit) for limit in limits]


def _limit(limit: Limit) -> dict[str, Any]:
    sign = "≥" if limit.is_minimum else "≤"
    if limit.metric == "throughput":
        text = units.rate(limit.value, limit.rate_unit, 3)
        return {"axis": "rate", "value": limit.value, "label": f"{limit.metric} {sign} {text}"}
    if limit.metric == "memory":
        text = units.size(limit.value, 3)
        return {"axis": "bytes", "value": limit.value, "label": f"peak memory {sign} {text}"}
    text = units.time(limit.value, 3)
    return {"axis": "time", "value": limit.value * 1e9, "label": f"{limit.metric} {sign} {text}"}


def _on(axis: str, limits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [limit for limit in limits if limit["axis"] == axis]


def _capacity(row: Scaling) -> list[dict[str, Any]]:
    if row.capacity is None:
        return []
    label = f"the device has {units.size(row.capacity, 3)}"
    return [{"axis": "bytes", "value": row.capacity, "label": label}]


def _fit(fit: Fit | None, times: float, limits: list[dict[str, Any]]) -> dict[str, Any] | None:
    if fit is None:
        return None
    batches = [batch for batch, _ in fit.points]
    smallest, largest = min(batches), 2 * max(batches)
    line = []
    for batch in sorted(
        {round(smallest + (largest - smallest) * step / STEPS) for step in range(STEPS + 1)}
    ):
        prediction = fit.predict(batch)
        band = prediction.interval
        ends = [None, None] if band is None else [band.low * times, band.high * times]
        line.append([batch, prediction.value * times, *ends])
    points = [[batch, value * times] for batch, value in fit.points]
    return {"points": points, "line": line, "limits": limits}


def title(sweep: Sweep) -> str:
    """Return the page's title."""
    return f"Sweep of {sweep.target.name}"


PARTS = {"overview": overview, "cells": cells, "pareto": pareto, "scaling": scaling}
