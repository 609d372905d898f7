"""The page of a history: each figure over the runs, and where it changed."""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.records.trend import CONFIRM, Trend, TrendChange, TrendSeries
from torchgauge.report.content.comparison import relative
from torchgauge.report.content.document import Unit
from torchgauge.report.content.trend import line
from torchgauge.report.page.page_document import figure, finding, first_screen

CARDS = 6
FINDINGS = 3
COMMIT = 10
USUAL_SPEED = " at the machine's usual speed"
# How the page's script shows a unit, and how many of its units an SI unit is.
PAGE_UNITS: dict[str, tuple[Unit, float]] = {
    "s": ("time", 1e9),
    "B": ("bytes", 1),
    "ratio": ("share", 1),
    "B/s": ("bytes/s", 1),
    "": ("count", 1),
}


def overview(trend: Trend) -> dict[str, Any]:
    """Return the first screen: the newest figures, the largest changes, alerts."""
    model_series = [trend_series for trend_series in trend.series if trend_series.layer is None]
    places = dict.fromkeys(
        (trend_series.cpu or trend_series.machine, trend_series.gpu)
        for trend_series in trend.series
    )
    changes = sorted(
        (
            (trend_series, change)
            for trend_series in trend.series
            for change in trend_series.changes
        ),
        key=lambda pair: (pair[1].worse is not True, -abs(pair[1].size)),
    )
    runs = {point.run for trend_series in trend.series for point in trend_series.points}
    machines = "; ".join(", ".join(filter(None, place)) for place in places)
    screen = first_screen(
        (["runs", f"{len(runs):,}", ""], ["machines", machines or "none", ""]),
        map(_card, model_series[:CARDS]),
        (_finding(*pair) for pair in changes[:FINDINGS]),
        created=max((trend_series.points[-1].created for trend_series in trend.series), default=""),
    )
    screen["warnings"] = [
        {"id": alert.rule, "probe": "alert", "failed": True, "text": line(alert)}
        for alert in trend.alerts
    ]
    return screen


def _card(series: TrendSeries) -> dict[str, str]:
    newest = series.points[-1]
    first = series.points[0].value
    since = relative(newest.value / first - 1) if first else ""
    note = f"{since} since the first of {len(series.points)} runs" if since else ""
    value = units.amount(newest.value, series.unit, series.metric)
    return figure(series.metric, value, note, series.how, "trend")


def _finding(series: TrendSeries, change: TrendChange) -> dict[str, Any]:
    label = series.metric if series.layer is None else f"{series.layer or 'model'} {series.metric}"
    if series.changes_in == "corrected":
        label += USUAL_SPEED
    lasting_text = "" if change.lasting == "stays" else f" ({change.lasting})"
    title = f"{label}: {relative(change.size)}{lasting_text}"
    return finding(title, f"{_commits(change)} {change.note}".strip(), "trend")


def _commits(change: TrendChange) -> str:
    if not change.until:
        return f"Between runs {change.first + 1} and {change.last + 1}."
    after = change.after[:COMMIT] or "an unknown commit"
    return f"After {after}, until {change.until[:COMMIT]}."


def series(trend: Trend) -> dict[str, Any] | None:
    """Return each series: values, intervals, commits, changes; times in whole nanoseconds.

    A series with corrected values is followed by those, as a series; changes are with their values.
    """
    if not trend.series:
        return None
    page_series: list[dict[str, Any]] = []
    for trend_series in trend.series:
        measured = _series(trend_series)
        page_series.append(measured)
        if trend_series.correction is not None:
            page_series.append(_corrected(trend_series, measured))
    return {"series": page_series, "confirm": CONFIRM}


def _series(trend_series: TrendSeries) -> dict[str, Any]:
    unit, factor = PAGE_UNITS.get(trend_series.unit, ("count", 1.0))
    label = (
        trend_series.metric
        if trend_series.layer is None
        else f"{trend_series.layer or '(the model itself)'}: {trend_series.metric}"
    )
    return {
        "name": label,
        "place": ", ".join(
            filter(
                None,
                (
                    trend_series.target,
                    trend_series.branch,
                    trend_series.device,
                    trend_series.gpu or trend_series.cpu,
                ),
            )
        ),
        "unit": unit,
        "how": trend_series.how,
        "values": _scaled([point.value for point in trend_series.points], factor),
        "low": _scaled([point.low for point in trend_series.points], factor),
        "high": _scaled([point.high for point in trend_series.points], factor),
        "created": [point.created[:16].replace("T", " ") for point in trend_series.points],
        "commits": [point.commit[:COMMIT] for point in trend_series.points],
        "changes": [_change(change) for change in trend_series.changes],
        "unknown": trend_series.unknown,
    }


def _corrected(trend_series: TrendSeries, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the series of corrected values; take over the changes if they are of those."""
    _, factor = PAGE_UNITS.get(trend_series.unit, ("count", 1.0))
    no_bounds = [None] * len(trend_series.points)
    changes, unknown = [], "Changes in the measured values: not every run has a corrected value."
    if trend_series.changes_in == "corrected":
        changes, unknown = measured["changes"], trend_series.unknown
        measured["changes"], measured["unknown"] = [], "Changes in the corrected values."
    return measured | {
        "name": measured["name"] + USUAL_SPEED,
        "how": "estimated",
        "values": _scaled([point.corrected for point in trend_series.points], factor),
        "low": no_bounds,
        "high": no_bounds,
        "changes": changes,
        "unknown": unknown,
    }


def _scaled(values: list[float | None], factor: float) -> list[float | None]:
    return [None if value is None else float(f"{value * factor:.7g}") for value in values]


def _change(change: TrendChange) -> dict[str, Any]:
    reach = change.interval
    between = f"{relative(reach.low)} … {relative(reach.high)}" if reach is not None else ""
    return {
        "from": change.first,
        "to": change.last,
        "size": relative(change.size),
        "interval": between,
        "worse": change.worse,
        "lasting": change.lasting,
        "commits": _commits(change),
        "software": change.software,
        "how": change.how,
    }


PARTS = {"overview": overview, "trend": series}
