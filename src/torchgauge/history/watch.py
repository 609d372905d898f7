"""Check a store, and windows of monitors, against alert rules."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.burn_rate import LONG
from torchgauge.analyze.monitoring.level_change import DAY, DAYS
from torchgauge.analyze.monitoring.window_alerts import (
    PREFIX,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.history.store import ALL_RUNS, Selection, Store
from torchgauge.history.trend import trend
from torchgauge.history.windows import read_windows
from torchgauge.records.monitoring.window import Window
from torchgauge.records.trend import Alert, Trend


def watch(
    store: Store,
    rules: Sequence[Rule],
    selection: Selection = ALL_RUNS,
    *,
    window_rules: Sequence[WindowRule] = (),
    now: float | None = None,
) -> Trend:
    """Return the series that the rules are about, with alerts and the rules that fit no run.

    Windows of monitors, which some rules are about, are those until `now` (seconds since 1970;
    None: the present). Raises InputError `alert-unit`.
    """
    now = time.time() if now is None else now
    windows = _windows(store, rules, window_rules, now)
    trends: dict[tuple[str, str | None], Trend] = {}
    all_alerts: list[Alert] = []
    unmatched: list[str] = []
    for rule in rules:
        key = (rule.metric, rule.layer)
        if key not in trends:
            trends[key] = _trend(store, rule, selection, windows, now)
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


def _windows(
    store: Store, rules: Sequence[Rule], window_rules: Sequence[WindowRule], now: float
) -> list[Window]:
    """Return the windows that the rules need: of two weeks and a day where a level is judged."""
    spans: dict[str, float] = {}
    for rule in rules:
        if rule.metric.startswith(PREFIX):
            name = rule.metric.removeprefix(PREFIX).rpartition("_")[0]
            spans[name] = max(spans.get(name, LONG), rule.over.total_seconds())
    for window_rule in window_rules:
        needed = (DAYS + 1) * DAY if window_rule.kind == "level" else LONG
        spans[window_rule.series] = max(spans.get(window_rule.series, LONG), needed)
    return [
        window
        for name, span in spans.items()
        for window in read_windows(store, series=name, since=now - span - LONG, until=now)
    ]


def _trend(
    store: Store, rule: Rule, selection: Selection, windows: Sequence[Window], now: float
) -> Trend:
    if not rule.metric.startswith(PREFIX):
        return trend(store, selection, [rule.metric], rule.layer)
    since = now - max(rule.over.total_seconds(), LONG) - LONG
    recent = [window for window in windows if window.end > since]
    fitting = [series for series in window_series(recent, now) if rule.fits(series)]
    return Trend(store=store.display_name, series=tuple(fitting))


def _add(
    name: str, broken: list[Alert] | None, all_alerts: list[Alert], unmatched: list[str]
) -> None:
    if broken is None:
        unmatched.append(name)
    all_alerts += broken or []
