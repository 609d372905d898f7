"""Evaluate alert rules on windows of monitors: objectives by burn rate, and changes of level.

How fast a monitor's calls use up the errors that an objective allows, over two spans of time.

Source: Google, "The Site Reliability Workbook" (2018), chapter 5, "Multiwindow, multi-burn-rate
alerts": over a long span that shows it matters, and a short one that shows it still goes on.
"""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torchgauge import units
from torchgauge.analyze.history.alerts import Rule
from torchgauge.analyze.monitoring.level_blocks import blocks_of
from torchgauge.analyze.monitoring.level_change import DAY, Budget, LevelChange, level_changes
from torchgauge.records.monitoring.window import LATENCY, LAYER, Window, merged
from torchgauge.records.trend import Alert, TrendPoint, TrendSeries

SHORT, LONG = 300.0, 3600.0  # seconds
# In an hour it uses 2 % of what is allowed in 30 days.
BURN = 14.4
# Bad calls in the long span below which a rate is chance.
FEWEST_BAD = 5


@dataclass(frozen=True)
class Objective:
    """A share of calls that is to be good: to succeed, in at most `limit` (SI units) if given."""

    share: float
    limit: float | None = None


@dataclass(frozen=True)
class BurnRate:
    """Bad calls over those allowed, of the two spans; None of a span without calls.

    1 uses up exactly what the objective allows. `bad` is how many calls of the long span were bad.
    """

    short: float | None
    long: float | None
    bad: float

    def exceeds(self, burn: float = BURN) -> bool:
        """Whether both spans burn faster than that, by more than single calls."""
        rates = (self.short, self.long)
        return self.bad >= FEWEST_BAD and all(rate is not None and rate > burn for rate in rates)


def burn_rate(windows: Sequence[Window], objective: Objective, now: float) -> BurnRate:
    """Return the burn rates of one series until `now` (seconds since 1970)."""
    short, _ = _burned(windows, objective, now - SHORT, now)
    long, bad = _burned(windows, objective, now - LONG, now)
    return BurnRate(short, long, bad)


def bad_calls(window: Window, objective: Objective) -> float:
    """Return the calls that failed, or took longer than the limit.

    Of calls that were not all timed as large a share took longer as of the timed ones.
    """
    timed = window.histogram.count
    if objective.limit is None or not timed:
        return float(window.failed)
    slow = window.histogram.count_above(objective.limit) / timed
    return window.failed + slow * (window.count - window.failed)


def _burned(
    windows: Iterable[Window], objective: Objective, begin: float, end: float
) -> tuple[float | None, float]:
    """Return the burn rate of the windows mostly within a span, and their bad calls."""
    inside = [window for window in windows if begin < (window.begin + window.end) / 2 <= end]
    calls = sum(window.count for window in inside)
    bad = sum(bad_calls(window, objective) for window in inside)
    return (bad / calls / (1 - objective.share) if calls else None), bad


# Metrics of windows begin with this in rules; the rest is the series and a statistic of it.
PREFIX = "monitor_"
STATISTICS = ("p50", "p90", "p99", "mean", "rate", "errors")
# Seconds of calls that make one point for rules on the newest figure.
POINT = 300.0
DEFAULT_OBJECTIVE = Objective(0.99)
DEFAULT_BUDGET = Budget()
# What tells processes apart, whose windows are one series.
_MERGED = ("process", "host")


@dataclass(frozen=True)
class WindowRule:
    """One rule on windows: `monitor` is a pattern of monitors' names.

    objective: the calls' errors, those above its limit with them, burn both in the last five
    minutes and in the last hour more than `burn` times as fast as the objective allows. level: the
    level rose by `step` (a ratio) or more within the last `within` seconds, as far as can be told
    with a `budget` of false alarms.
    """

    name: str
    kind: Literal["objective", "level"]
    series: str = LATENCY
    monitor: str = "*"
    objective: Objective = DEFAULT_OBJECTIVE
    burn: float = BURN
    step: float = 0.1
    within: float = DAY
    budget: Budget = DEFAULT_BUDGET

    def fits(self, window: Window) -> bool:
        """Whether the rule applies to the series of a window."""
        monitor = window.labels.get("monitor", "")
        return window.series == self.series and fnmatch.fnmatchcase(monitor, self.monitor)


def series_of(rule: Rule | WindowRule) -> str:
    """Return the series that a rule on windows is about."""
    if isinstance(rule, WindowRule):
        return rule.series
    return rule.metric.removeprefix(PREFIX).rpartition("_")[0]


def fits(rule: Rule | WindowRule, window: Window) -> bool:
    """Whether a rule applies to the series of a window."""
    if isinstance(rule, WindowRule):
        return rule.fits(window)
    return (
        rule.metric.startswith(PREFIX)
        and series_of(rule) == window.series
        and (rule.layer is None) == (window.series != LAYER)
        and fnmatch.fnmatchcase(window.labels.get("layer", ""), rule.layer or "*")
        and fnmatch.fnmatchcase(window.labels.get("monitor", ""), rule.target)
    )


def window_alerts(rule: WindowRule, windows: Iterable[Window], now: float) -> list[Alert] | None:
    """Return the alerts of a rule; None where no series can be judged at `now` (since 1970).

    An objective needs calls within the last hour, a level five days of them.
    """
    groups = _by_series(window for window in windows if rule.fits(window))
    judged = [_objective, _level][rule.kind == "level"]
    results = [judged(rule, group, now) for group in groups]
    if all(alerts is None for alerts in results):
        return None
    return [alert for alerts in results for alert in alerts or ()]


def window_series(windows: Iterable[Window], now: float) -> list[TrendSeries]:
    """Return the series of monitors for rules on the newest figure, five minutes a point.

    Those without calls within the last hour until `now` are left out: their newest is none.
    """
    return [
        series
        for group in _by_series(windows)
        if now - group[-1].end <= LONG
        for series in _statistics(group)
    ]


def _by_series(windows: Iterable[Window]) -> list[list[Window]]:
    groups: dict[object, list[Window]] = {}
    for window in windows:
        labels = [pair for pair in window.labels.items() if pair[0] not in _MERGED]
        groups.setdefault((window.series, *sorted(labels)), []).append(window)
    return [sorted(group, key=lambda window: window.end) for group in groups.values()]


def _objective(rule: WindowRule, windows: Sequence[Window], now: float) -> list[Alert] | None:
    rate = burn_rate(windows, rule.objective, now)
    if rate.long is None:
        return None
    if not rate.exceeds(rule.burn):
        return []
    limit = rule.objective.limit
    good = "succeed" if limit is None else f"take at most {units.amount(limit, windows[0].unit)}"
    text = (
        f"burns ×{units.significant(rate.long)} of what is allowed in an hour and "
        f"×{units.significant(rate.short or 0)} in five minutes, above "
        f"×{units.significant(rule.burn)}: "
        f"{100 * rule.objective.share:g} % of calls shall {good}"
    )
    return [_alert(rule, windows[0], text, rate.long, rule.burn)]


def _level(rule: WindowRule, windows: Sequence[Window], now: float) -> list[Alert] | None:
    if not windows or now - windows[-1].end > LONG:
        return None
    levels = level_changes(blocks_of(windows), rule.step, rule.budget)
    if levels.smallest is None:
        return None
    news = [
        change
        for change in levels.changes
        if change.size > 0 and now - change.detected <= rule.within
    ]
    if not news and levels.smallest > rule.step * (1 + 1e-9):
        return None  # hours differ by more than allows to tell such a step
    return [_alert(rule, windows[0], _moved(change), change.size, rule.step) for change in news]


def _moved(change: LevelChange) -> str:
    begin = datetime.datetime.fromtimestamp(change.begin, datetime.UTC)
    size = units.with_minus(f"{100 * change.size:+.1f} %")
    return (
        f"level changed by {size} at about {begin:%Y-%m-%d %H:%M} UTC, against the same time of "
        f"earlier days (told after {change.calls:,} calls)"
    )


def _alert(rule: WindowRule, window: Window, text: str, value: float, limit: float) -> Alert:
    return Alert(
        rule=rule.name,
        target=window.labels.get("monitor", ""),
        branch="",
        machine="",
        metric=f"{PREFIX}{window.series}",
        layer=window.labels.get("layer"),
        message=text,
        value=value,
        limit=limit,
        unit="ratio",
    )


def _statistics(windows: Sequence[Window]) -> Iterator[TrendSeries]:
    """Yield the statistics of a series over time, of those that have a value."""
    newest = windows[-1].without(*_MERGED)
    monitor = newest.labels.get("monitor", "")
    spans = _spans(windows)
    for statistic in STATISTICS:
        points = tuple(_points(spans, statistic))
        if points:
            yield TrendSeries(
                target=monitor,
                model=monitor,
                branch="",
                machine="",
                cpu="",
                gpu="",
                device="",
                precision="",
                workload=repr(newest.key),
                metric=f"{PREFIX}{newest.series}_{statistic}",
                layer=newest.labels.get("layer"),
                unit={"rate": "1/s", "errors": "ratio"}.get(statistic, newest.unit),
                how=newest.how,
                points=points,
            )


def _spans(windows: Sequence[Window]) -> list[Window]:
    """Return the windows of five minutes each, back from the newest, oldest first."""
    spans: dict[int, list[Window]] = {}
    end = windows[-1].end
    for window in windows:
        spans.setdefault(int((end - window.end) // POINT), []).append(window.without(*_MERGED))
    return [merged(spans[number])[0] for number in sorted(spans, reverse=True)]


def _points(spans: Iterable[Window], statistic: str) -> Iterator[TrendPoint]:
    for span in spans:
        value = _value(span, statistic)
        if value is not None:
            created = datetime.datetime.fromtimestamp(span.end, datetime.UTC)
            yield TrendPoint(run="", created=created.isoformat(), value=value)


def _value(window: Window, statistic: str) -> float | None:
    if statistic == "rate":
        return window.rate
    if statistic == "errors":
        return window.error_share
    if statistic == "mean":
        return window.histogram.mean
    return window.histogram.quantile(int(statistic.removeprefix("p")) / 100)
