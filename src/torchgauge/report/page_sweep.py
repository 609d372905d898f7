"""The data of a sweep's page: the cells, the front, and points with lines of how rows scale.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

from typing import Any

from torchgauge.model.sweep import AXES, Cell, CellSettings, Fit, Sweep
from torchgauge.report import sweep_words as words
from torchgauge.report.page_overview import warnings

# Steps in which a fit's band is drawn, from the smallest batch to twice the largest.
STEPS = 24


def overview(sweep: Sweep) -> dict[str, Any]:
    """Return the first screen of a sweep."""
    return {
        "facts": [[name, text, ""] for name, text in words.facts(sweep)],
        "created": sweep.environment.created,
        "figures": [_card(one) for one in words.best(sweep)],
        "bound": None,
        "phases": None,
        "findings": [],
        "warnings": warnings(sweep.all_warnings),
        "complete": True,
        "interrupted": sweep.interrupted,
    }


def _card(one: words.BestWords) -> dict[str, str]:
    return {
        "label": f"best {one.metric}",
        "value": one.figure or "unknown",
        "note": ", ".join(filter(None, (one.cell, *one.notes))),
        "how": "measured",
        "view": "cells",
    }


def cells(sweep: Sweep) -> dict[str, Any]:
    """Return every cell with its settings and figures, and the axes of which values differ."""
    varying = [name for name in AXES if len({getattr(c.settings, name) for c in sweep.cells}) > 1]
    rows = [_cell(sweep, place, cell) for place, cell in enumerate(sweep.cells)]
    return {"axes": varying, "rate": words.rate(sweep), "rows": rows, "where": sweep.where}


def _cell(sweep: Sweep, place: int, cell: Cell) -> dict[str, Any]:
    latency = cell.latency
    interval = None if latency is None else latency.interval
    return {
        "label": cell.settings.label,
        "series": _series(cell.settings),
        "settings": {name: getattr(cell.settings, name) for name in AXES},
        "batch": cell.batch,
        "status": cell.status,
        "reason": cell.reason,
        "median": _ns(None if latency is None else latency.median),
        "low": _ns(None if interval is None else interval.low),
        "high": _ns(None if interval is None else interval.high),
        "p99": _ns(None if latency is None else latency.p99),
        "first_call": _ns(None if latency is None else latency.first_call),
        "rate": cell.per_second,
        "memory": None if cell.memory is None else cell.memory.peak,
        "flops": None if cell.cost is None else cell.cost.flops,
        "front": place in sweep.front.cells,
        "best": [one.metric for one in sweep.best if one.cell == place],
        "warnings": [warning.id for warning in cell.warnings],
    }


def pareto(sweep: Sweep) -> dict[str, Any] | None:
    """Return the front: its objectives and cells, by their places, fastest first; None if empty."""
    if not sweep.front.cells:
        return None
    order = sorted(sweep.front.cells, key=lambda place: _median(sweep.cells[place]))
    return {
        "objectives": list(sweep.front.objectives),
        "cells": order,
    }


def _median(cell: Cell) -> float:
    return 0.0 if cell.latency is None else cell.latency.median


def scaling(sweep: Sweep) -> list[dict[str, Any]] | None:
    """Return each row of batches: measured points, the line and its band, and what fits."""
    made = [
        {
            "series": _series(one.settings),
            "words": [list(pair) for pair in words.scaling(one)],
            "latency": _fit(one.latency, 1e9),
            "memory": _fit(one.memory, 1.0),
            "capacity": one.capacity,
            "largest": one.largest,
            "smallest_failed": one.smallest_failed,
        }
        for one in sweep.scaling
    ]
    return made or None


def _fit(fit: Fit | None, times: float) -> dict[str, Any] | None:
    if fit is None:
        return None
    batches = [batch for batch, _ in fit.points]
    least, most = min(batches), 2 * max(batches)
    line = []
    for batch in sorted(
        {round(least + (most - least) * step / STEPS) for step in range(STEPS + 1)}
    ):
        found = fit.predict(batch)
        band = found.interval
        ends = [None, None] if band is None else [band.low * times, band.high * times]
        line.append([batch, found.value * times, *ends])
    points = [[batch, value * times] for batch, value in fit.points]
    return {"points": points, "line": line, "holds": fit.holds, "reason": fit.reason}


def _series(settings: CellSettings) -> str:
    return settings.series.label


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
