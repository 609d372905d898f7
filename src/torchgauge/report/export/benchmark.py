"""Figures as the JSON that github-action-benchmark keeps a history of.

It takes a list of results that are all better smaller, or all better bigger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from torchgauge import units
from torchgauge.records.metric import METRICS, figure_of
from torchgauge.records.profile import Profile
from torchgauge.records.record import How, Interval
from torchgauge.records.verdict import Verdict

Better = Literal["lower", "higher"]
# By SI unit: the unit in charts, which have no prefixes, and how many of it make one.
DISPLAY_UNITS = {"s": ("ms", 1e3), "B": ("MB", 1e-6), "1/s": ("per second", 1.0)}
COUNTED = {"params": "parameters", "flops": "FLOP", "macs": "MAC"}


def render(record: Profile | Verdict, better: Better = "lower") -> str:
    """Return the known metrics whose good direction is `better`, as a list of results.

    Their keys are name, unit, value, range and extra ("customSmallerIsBetter" and
    "customBiggerIsBetter" of benchmark-action/github-action-benchmark).
    """
    entries = _profile(record) if isinstance(record, Profile) else _verdict(record)
    results = [entry for direction, entry in entries if direction == better]
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def _profile(profile: Profile) -> Iterator[tuple[Better, dict[str, Any]]]:
    for metric in METRICS.values():
        figure = figure_of(profile, metric)
        if figure.value is not None:
            # p50 is the median, which has its own entry.
            if metric.name == "p50":
                continue
            name = f"{profile.target.name}: {metric.name}"
            yield (
                metric.better,
                _entry(name, metric.name, figure.unit, figure.value, figure.interval, figure.how),
            )


def _verdict(verdict: Verdict) -> Iterator[tuple[Better, dict[str, Any]]]:
    comparison = verdict.comparison
    prefix = "" if comparison is None else f"{comparison.current.target.name}: "
    for ruling in verdict.rulings:
        metric = METRICS.get(ruling.metric)
        if ruling.current is not None and metric is not None:
            # The interval of a ruling by tolerance is that of the change.
            interval = ruling.interval if ruling.limit is not None else None
            entry = _entry(
                prefix + ruling.label,
                ruling.metric,
                ruling.unit,
                ruling.current,
                interval,
                ruling.how,
            )
            yield metric.better, entry | {"extra": f"{entry['extra']}, {ruling.outcome}"}


def _entry(
    name: str, metric: str, unit: str, value: float, interval: Interval | None, how: How
) -> dict[str, Any]:
    display_unit, scale = DISPLAY_UNITS.get(unit, (COUNTED.get(metric, ""), 1.0))
    entry: dict[str, Any] = {
        "name": name,
        "unit": display_unit,
        "value": value * scale,
        "extra": how,
    }
    if scale == 1.0:
        entry["value"] = value
    if interval is not None:
        half = units.significant(interval.half_width * scale, 3).replace(",", "")
        entry["range"] = f"± {half}"
    return entry
