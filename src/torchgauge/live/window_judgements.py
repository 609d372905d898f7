"""What alert rules say of the windows of one live series."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.burn_rate import SHORT
from torchgauge.analyze.monitoring.window_alerts import (
    PREFIX,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.records.monitoring.window import LATENCY, REQUEST, Window

# Returns the alerts of a series as texts; None where it cannot be judged yet.
Judge = Callable[[Sequence[Window], float], list[str] | None]
# What is reported where no file of rules is given: errors that burn what 99 % allow.
DEFAULT_RULES = tuple(
    WindowRule(name="objective", kind="objective", series=series) for series in (LATENCY, REQUEST)
)


def judge(rules: Sequence[Rule], window_rules: Sequence[WindowRule] = DEFAULT_RULES) -> Judge:
    """Return what holds windows of an hour against rules.

    Objectives and thresholds of windows are judged; levels and growth need days, and are unknown
    here. A window of more than five minutes, such as the first look at what ran before, is not
    evidence about now.
    """
    thresholds = [
        rule for rule in rules if rule.kind == "threshold" and rule.metric.startswith(PREFIX)
    ]
    objectives = [rule for rule in window_rules if rule.kind == "objective"]

    def judged(windows: Sequence[Window], now: float) -> list[str] | None:
        recent = [window for window in windows if window.end - window.begin <= SHORT]
        if not recent:
            return None
        results = [window_alerts(rule, recent, now) for rule in objectives if rule.fits(recent[-1])]
        if thresholds:
            series = window_series(recent, now)
            results += [alerts(rule, series) for rule in thresholds]
        if all(result is None for result in results):
            return None
        return [f"{alert.rule}: {alert.message}" for result in results for alert in result or []]

    return judged
