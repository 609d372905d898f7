"""Evaluate alert rules on series of runs."""

from __future__ import annotations

import fnmatch
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from torchgauge import units
from torchgauge.analyze.statistics.change_points import MIN_RUNS
from torchgauge.errors import InputError
from torchgauge.records.trend import Alert, TrendSeries

# A change is reported for this many runs.
NEWS_RUNS = 20
# Growth is between the medians of at most this many runs at either end.
MAX_END_RUNS = 5


@dataclass(frozen=True)
class Rule:
    """One rule: `target`, `branch` and `layer` are patterns, `limit` is in `unit` (SI).

    threshold: the newest run is `side` ("above" or "below") the limit. change: the level moved by
    `limit` (a ratio) for the worse within `within` runs, and stayed. sum: the newest run's figures
    of all matching layers, each counted once, add up to more than the limit. growth: more than
    `limit` (a ratio) over the time `over`.
    """

    name: str
    kind: Literal["threshold", "change", "sum", "growth"]
    metric: str
    limit: float
    unit: str
    side: Literal["above", "below"] = "above"
    layer: str | None = None
    target: str = "*"
    branch: str = "*"
    within: int = NEWS_RUNS
    over: timedelta = timedelta()

    def fits(self, series: TrendSeries) -> bool:
        """Whether the rule applies to the series."""
        layers = (self.layer is None) == (series.layer is None)
        return (
            layers
            and series.metric == self.metric
            and fnmatch.fnmatchcase(series.layer or "", self.layer or "")
            and fnmatch.fnmatchcase(series.target, self.target)
            and fnmatch.fnmatchcase(series.branch, self.branch)
        )


def alerts(rule: Rule, series: Sequence[TrendSeries]) -> list[Alert] | None:
    """Return the alerts of a rule; None where it applies to no series with enough runs.

    Raises InputError `alert-unit` where the limit is in another unit than the figure.
    """
    fitting = [trend for trend in series if rule.fits(trend) and _enough(rule, trend)]
    if not fitting:
        return None
    if rule.kind in ("threshold", "sum"):
        _check_unit(rule, fitting[0])
    if rule.kind == "sum":
        return list(_sums(rule, fitting))
    check = {"threshold": _threshold, "change": _change, "growth": _growth}[rule.kind]
    return [alert for trend in fitting for alert in check(rule, trend)]


def _enough(rule: Rule, series: TrendSeries) -> bool:
    """Whether the series has enough runs to be judged."""
    if rule.kind == "change" and series.how != "counted":
        return len(series.points) >= 2 * MIN_RUNS
    if rule.kind in ("change", "growth"):
        return len(_recent_values(rule, series)) > 1
    return bool(series.points)


def _recent_values(rule: Rule, series: TrendSeries) -> list[float]:
    """Return the values of the rule's time span; all where it has none."""
    if not series.points or not rule.over:
        return [point.value for point in series.points]
    end = datetime.fromisoformat(series.points[-1].created)
    return [
        point.value
        for point in series.points
        if end - datetime.fromisoformat(point.created) <= rule.over
    ]


def _threshold(rule: Rule, series: TrendSeries) -> Iterator[Alert]:
    point = series.points[-1]
    is_broken = point.value > rule.limit if rule.side == "above" else point.value < rule.limit
    if not is_broken:
        return
    low, high = point.low, point.high
    borderline = low is not None and high is not None and low <= rule.limit <= high
    unit, metric = series.unit, series.metric
    amounts = [units.amount(value, unit, metric) for value in (point.value, rule.limit)]
    text = f"{amounts[0]} is {rule.side} {amounts[1]}"
    if low is not None and high is not None:
        text += f" ({units.amount(low, unit, metric)} … {units.amount(high, unit, metric)})"
    yield _alert(rule, series, text + ", borderline" * borderline, point.value, borderline)


def _change(rule: Rule, series: TrendSeries) -> Iterator[Alert]:
    for change in series.changes:
        news = len(series.points) - change.likeliest <= rule.within
        large = abs(change.size) >= rule.limit
        if news and large and change.lasting == "stays" and change.worse is not False:
            between = f"{change.after[:10] or 'a run'} … {change.until[:10] or 'a run'}"
            size = units.with_minus(f"{100 * change.size:+.1f} %")
            text = f"changed by {size} after {between}"
            if series.changes_in == "corrected":
                text += ", at the machine's usual speed"
            yield _alert(rule, series, f"{text}. {change.note}".strip(), change.size)


def _sums(rule: Rule, fitting: Iterable[TrendSeries]) -> Iterator[Alert]:
    """Add up the layers of each newest run; layers removed since are left out."""
    groups: dict[tuple[str, ...], list[TrendSeries]] = {}
    for trend in fitting:
        kind = (trend.target, trend.branch, trend.workload, trend.machine)
        groups.setdefault(kind, []).append(trend)
    for group in groups.values():
        newest = max((trend.points[-1] for trend in group), key=lambda point: point.created)
        parts = _outermost([trend for trend in group if trend.points[-1].run == newest.run])
        total = sum(trend.points[-1].value for trend in parts)
        if total > rule.limit:
            unit, metric = parts[0].unit, parts[0].metric
            sum_text, limit = (units.amount(value, unit, metric) for value in (total, rule.limit))
            text = f"{len(parts)} add up to {sum_text}, above {limit}"
            yield _alert(rule, parts[0], text, total, layer=rule.layer)


def _outermost(series: list[TrendSeries]) -> list[TrendSeries]:
    """Return the layers nested in no other: a layer's figures contain those of its children."""
    paths = {trend.layer for trend in series}

    def within(path: str) -> bool:
        parts = path.split(".")
        above = {".".join(parts[:depth]) for depth in range(len(parts))}
        return bool(path) and not above.isdisjoint(paths)

    return [trend for trend in series if not within(trend.layer or "")]


def _growth(rule: Rule, series: TrendSeries) -> Iterator[Alert]:
    values = _recent_values(rule, series)
    end_runs = min(MAX_END_RUNS, len(values) // 2)
    old, new = statistics.median(values[:end_runs]), statistics.median(values[-end_runs:])
    growth = new / old - 1 if old else float(new > 0)
    if growth > rule.limit:
        text = f"grew by {units.percent(growth)} in {rule.over.days} days"
        yield _alert(rule, series, f"{text}, above {units.percent(rule.limit)}", growth)


def _alert(
    rule: Rule,
    series: TrendSeries,
    message: str,
    value: float,
    borderline: bool = False,
    layer: str | None = None,
) -> Alert:
    return Alert(
        rule=rule.name,
        target=series.target,
        branch=series.branch,
        machine=series.machine,
        metric=series.metric,
        layer=layer or series.layer,
        message=message,
        value=value,
        limit=rule.limit,
        unit="ratio" if rule.kind in ("change", "growth") else series.unit,
        borderline=borderline,
    )


def _check_unit(rule: Rule, series: TrendSeries) -> None:
    plain = rule.unit == "" and series.unit == "ratio"
    if rule.unit != series.unit and not plain:
        expected = {"s": "ms or s", "B": "MB or GiB", "1/s": "/s"}.get(series.unit, "no unit")
        raise InputError(
            f"The limit of rule '{rule.name}' does not fit {rule.metric}.",
            id="alert-unit",
            cause=f"It is in '{rule.unit or 'plain numbers'}', the figure in '{series.unit}'.",
            remedy=f"Give it with {expected}.",
        )
