"""The page of a history: each figure over the runs, and where it changed."""

from __future__ import annotations

from typing import Any

from torchgauge import units
from torchgauge.model.trend import CONFIRM, Trend, TrendChange, TrendSeries
from torchgauge.report.comparison import relative
from torchgauge.report.page_tables import Unit
from torchgauge.report.trend import line

CARDS = 6
FINDINGS = 3
COMMIT = 10
USUAL_SPEED = " at the machine's usual speed"
# How the page's script shows a unit, and how many of its units an SI unit is.
SHOWN: dict[str, tuple[Unit, float]] = {
    "s": ("time", 1e9),
    "B": ("bytes", 1),
    "ratio": ("share", 1),
    "B/s": ("bytes/s", 1),
    "": ("count", 1),
}


def overview(trend: Trend) -> dict[str, Any]:
    """Return the first screen: the newest figures, what changed last, alerts."""
    whole = [one for one in trend.series if one.layer is None]
    places = dict.fromkeys((one.cpu or one.machine, one.gpu) for one in trend.series)
    found = sorted(
        ((one, change) for one in trend.series for change in one.changes),
        key=lambda pair: (pair[1].worse is not True, -abs(pair[1].size)),
    )
    runs = {point.run for one in trend.series for point in one.points}
    machines = "; ".join(", ".join(filter(None, place)) for place in places)
    return {
        "facts": [["runs", f"{len(runs):,}", ""], ["machines", machines or "none", ""]],
        "created": max((one.points[-1].created for one in trend.series), default=""),
        "figures": [_card(one) for one in whole[:CARDS]],
        "bound": None,
        "phases": None,
        "findings": [_finding(*pair) for pair in found[:FINDINGS]],
        "warnings": [
            {"id": alert.rule, "probe": "alert", "failed": True, "text": line(alert)}
            for alert in trend.alerts
        ],
        "complete": True,
        "interrupted": False,
    }


def _card(series: TrendSeries) -> dict[str, str]:
    newest = series.points[-1]
    first = series.points[0].value
    since = relative(newest.value / first - 1) if first else ""
    note = f"{since} since the first of {len(series.points)} runs" if since else ""
    return {
        "label": series.metric,
        "value": units.amount(newest.value, series.unit),
        "note": note,
        "how": series.how,
        "view": "trend",
    }


def _finding(series: TrendSeries, change: TrendChange) -> dict[str, Any]:
    what = series.metric if series.layer is None else f"{series.layer or 'model'} {series.metric}"
    if series.changes_in == "corrected":
        what += USUAL_SPEED
    kept = "" if change.lasting == "stays" else f" ({change.lasting})"
    return {
        "title": f"{what}: {relative(change.size)}{kept}",
        "text": f"{_commits(change)} {change.note}".strip(),
        "view": "trend",
        "node": None,
        "search": "",
    }


def _commits(change: TrendChange) -> str:
    if not change.until:
        return f"Between runs {change.first + 1} and {change.last + 1}."
    after = change.after[:COMMIT] or "an unknown commit"
    return f"After {after}, until {change.until[:COMMIT]}."


def series(trend: Trend) -> dict[str, Any] | None:
    """Return each series: values, intervals, commits, changes; times in whole nanoseconds.

    A series with corrected values is followed by one of them; changes are in the one they are of.
    """
    if not trend.series:
        return None
    shown: list[dict[str, Any]] = []
    for one in trend.series:
        measured = _series(one)
        shown.append(measured)
        if one.correction is not None:
            shown.append(_corrected(one, measured))
    return {"series": shown, "confirm": CONFIRM}


def _series(one: TrendSeries) -> dict[str, Any]:
    unit, factor = SHOWN.get(one.unit, ("count", 1.0))
    what = one.metric if one.layer is None else f"{one.layer or '(the model itself)'}: {one.metric}"
    return {
        "name": what,
        "place": ", ".join(filter(None, (one.target, one.branch, one.device, one.gpu or one.cpu))),
        "unit": unit,
        "how": one.how,
        "values": _scaled([point.value for point in one.points], factor),
        "low": _scaled([point.low for point in one.points], factor),
        "high": _scaled([point.high for point in one.points], factor),
        "created": [point.created[:16].replace("T", " ") for point in one.points],
        "commits": [point.commit[:COMMIT] for point in one.points],
        "changes": [_change(change) for change in one.changes],
        "unknown": one.unknown,
    }


def _corrected(one: TrendSeries, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the series of the corrected values; move the changes there if they are of those."""
    _, factor = SHOWN.get(one.unit, ("count", 1.0))
    none = [None] * len(one.points)
    changes, unknown = [], "Changes are of what was measured: not every run has a corrected value."
    if one.changes_in == "corrected":
        changes, unknown = measured["changes"], one.unknown
        measured["changes"], measured["unknown"] = [], "Changes are of the corrected values."
    return measured | {
        "name": measured["name"] + USUAL_SPEED,
        "how": "estimated",
        "values": _scaled([point.corrected for point in one.points], factor),
        "low": none,
        "high": none,
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
