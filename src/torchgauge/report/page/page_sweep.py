"""The data of a sweep's page: the cells, the front, and points with lines of how rows scale.

Times are whole nanoseconds, sizes bytes; None is unknown.
"""

from __future__ import annotations

from typing import Any

from torchgauge.records.sweep import AXES, Cell, CellSettings, Fit, Sweep
from torchgauge.report.content import sweep_words as words
from torchgauge.report.page.page_profile import warnings

# Steps in which a fit's band is drawn, from the smallest batch to twice the largest.
STEPS = 24


def overview(sweep: Sweep) -> dict[str, Any]:
    """Return the first screen of a sweep."""
    return {
        "facts": [[name, text, ""] for name, text in words.facts(sweep)],
        "created": sweep.environment.created,
        "figures": [_card(best) for best in words.best(sweep)],
        "bound": None,
        "phases": None,
        "findings": [],
        "warnings": warnings(sweep.all_warnings),
        "complete": True,
        "interrupted": sweep.interrupted,
    }


def _card(best: words.BestWords) -> dict[str, str]:
    return {
        "label": f"best {best.metric}",
        "value": best.figure or "unknown",
        "note": ", ".join(filter(None, (best.cell, *best.notes))),
        "how": "measured",
        "view": "cells",
    }


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
        "best": [best.metric for best in sweep.best if best.cell == place],
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
    curves = [
        {
            "series": _series(row.settings),
            "words": [list(pair) for pair in words.scaling(row)],
            "latency": _fit(row.latency, 1e9),
            "memory": _fit(row.memory, 1.0),
            "capacity": row.capacity,
            "largest": row.largest,
            "smallest_failed": row.smallest_failed,
        }
        for row in sweep.scaling
    ]
    return curves or None


def _fit(fit: Fit | None, times: float) -> dict[str, Any] | None:
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
    return {"points": points, "line": line, "holds": fit.is_linear, "reason": fit.reason}


def _series(settings: CellSettings) -> str:
    return settings.series.label


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def title(sweep: Sweep) -> str:
    """Return the page's title."""
    return f"Sweep of {sweep.target.name}"


PARTS = {"overview": overview, "cells": cells, "pareto": pareto, "scaling": scaling}
