"""Settings of a capacity plan: percentiles by workers and by rate, knees, and the front.

Everything here is estimated by simulation. Times are whole nanoseconds; None is unknown.
"""

from __future__ import annotations

from typing import Any

from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.report.content.serving import capacity
from torchgauge.report.content.serving.capacity import setting_name
from torchgauge.report.page.page_tables import document_table
from torchgauge.report.page.serving.rate_curves import DRAWN, percentile, percentile_goals, scaled


def settings(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the settings as a table, percentiles by workers and by rate."""
    if not plan.settings:
        return None
    return {
        "by_workers": _by_workers(plan),
        "goals": percentile_goals(plan.goals, "latency"),
        "knees": _knees(plan),
        "needed": None if plan.needed is None else plan.needed.workers,
        "rate": plan.arrivals.rate if plan.needed is None else plan.needed.rate,
        "table": document_table(capacity.settings(plan.settings, "settings")),
    }


def _by_workers(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the percentiles of settings that differ in workers alone, and which never settle."""
    chosen = plan.by_workers
    if len(chosen) < 2:
        return None
    return {
        "series": _series(chosen),
        "unstable": [workers for workers, setting in chosen.items() if not setting.stable],
        "rate": next(iter(chosen.values())).rate,
        "note": setting_name(next(iter(chosen.values()))),
    }


def _series(by_workers: dict[int, PlannedSetting]) -> list[dict[str, Any]]:
    series = []
    for fraction in DRAWN:
        points = [
            [workers, *scaled(estimate)]
            for workers, setting in by_workers.items()
            if setting.latency is not None
            and (estimate := setting.latency.percentile(fraction)) is not None
        ]
        if points:
            series.append({"label": f"p{100 * fraction:g}", "fraction": fraction, "points": points})
    return series


def _knees(plan: CapacityPlan) -> list[list[float | None]]:
    """Return (workers, knee and its ends) of settings that differ from the needed in workers."""
    knees = [
        [float(workers), *scaled(setting.knee, 1.0)]
        for workers, setting in plan.by_workers.items()
        if setting.knee is not None
    ]
    return knees if len(knees) > 1 else []


def front(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the settings that no other beats: knee and latency as points, and a table."""
    if not plan.front:
        return None
    points = [
        {
            "workers": setting.workers,
            "text": f"{setting.workers:,} worker{'s' * (setting.workers != 1)}, "
            f"{setting_name(setting)}",
            "batch": setting.max_batch,
            "knee": setting.knee.value,
            "latency": round(latency * 1e9),
        }
        for setting in plan.front
        if setting.knee is not None and (latency := percentile(setting.latency, 0.99))
    ]
    table = document_table(capacity.settings(plan.front, "front"))
    return {"points": points, "table": table}
