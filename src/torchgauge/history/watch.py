"""Check a store against alert rules."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.history.store import ALL_RUNS, Selection, Store
from torchgauge.history.trend import trend
from torchgauge.records.trend import Alert, Trend


def watch(store: Store, rules: Sequence[Rule], selection: Selection = ALL_RUNS) -> Trend:
    """Return the series that the rules are about, with alerts and the rules that fit no run.

    Raises InputError `alert-unit`.
    """
    trends: dict[tuple[str, str | None], Trend] = {}
    all_alerts: list[Alert] = []
    unmatched = []
    for rule in rules:
        key = (rule.metric, rule.layer)
        if key not in trends:
            trends[key] = trend(store, selection, [rule.metric], rule.layer)
        broken = alerts(rule, trends[key].series)
        if broken is None:
            unmatched.append(rule.name)
        all_alerts += broken or []
    series = tuple(
        trend_series for rule_trend in trends.values() for trend_series in rule_trend.series
    )
    return Trend(
        store=store.display_name,
        series=series,
        alerts=tuple(all_alerts),
        unmatched=tuple(unmatched),
    )
