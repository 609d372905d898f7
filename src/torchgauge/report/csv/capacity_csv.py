"""Planned settings as rows, all figures with their intervals, for CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchgauge.records import rendering
from torchgauge.records.exported import Csv
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting
from torchgauge.records.serving.requests import Estimate

FRACTIONS = (0.5, 0.9, 0.95, 0.99)


def table(plan: CapacityPlan, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows of the settings, then of the front.

    Raises InputError `format-unfit` for other tables.
    """
    if name != "figures":
        raise rendering.unfit("CapacityPlan", name)
    rows = [row(plan, setting, "settings") for setting in plan.settings]
    rows += [row(plan, setting, "front") for setting in plan.front]
    return list(rows[0]) if rows else ["part"], [list(values.values()) for values in rows]


def row(plan: CapacityPlan, setting: PlannedSetting, part: str) -> dict[str, Any]:
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
