"""Check a store, and windows of monitors, against alert rules."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.window_alerts import (
    PREFIX,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.history.store import ALL_RUNS, Selection, Store
from torchgauge.history.trend import trend
from torchgauge.records.monitoring.window import Window
from torchgauge.records.trend import Alert, Trend


def watch(
    store: Store,
    rules: Sequence[Rule],
    selection: Selection = ALL_RUNS,
    *,
    window_rules: Sequence[WindowRule] = (),
    windows: Sequence[Window] = (),
    now: float = 0.0,
) -> Trend:
    """Return the series that the rules are about, with alerts and the rules that fit no run.

    `windows` are those of monitors until `now` (seconds since 1970), which some rules are about.
    Raises InputError `alert-unit`.
    """
    trends: dict[tuple[str, str | None], Trend] = {}
    all_alerts: list[Alert] = []
    unmatched = []
    for rule in rules:
        key = (rule.metric, rule.layer)
        if key not in trends:
            trends[key] = _trend(store, rule, selection, windows)
        _add(rule.name, alerts(rule, trends[key].series), all_alerts, unmatched)
    for window_rule in window_rules:
        _add(window_rule.name, window_alerts(window_rule, windows, now), all_alerts, unmatched)
    series = tuple(
        trend_series for rule_trend in trends.values() for trend_series in rule_trend.series
    )
    return Trend(
        store=store.display_name,
        series=series,
        alerts=tuple(all_alerts),
        unmatched=tuple(unmatched),
    )


def _trend(store: Store, rule: Rule, selection: Selection, windows: Sequence[Window]) -> Trend:
    if not rule.metric.startswith(PREFIX):
        return trend(store, selection, [rule.metric], rule.layer)
    fitting = [series for series in window_series(windows) if rule.fits(series)]
    return Trend(store=store.display_name, series=tuple(fitting))


def _add(
    name: str, broken: list[Alert] | None, all_alerts: list[Alert], unmatched: list[str]
) -> None:
    if broken is None:
        unmatched.append(name)
    all_alerts += broken or []
