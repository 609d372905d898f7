"""What alert rules say of the windows of one live series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.burn_rate import SHORT
from torchgauge.analyze.monitoring.window_alerts import (
    PREFIX,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.live.stored_judgements import StoredJudgements
from torchgauge.records.monitoring.window import LATENCY, REQUEST, Window

Kind = Literal["alert", "steady", "unknown", "unruled"]
# Returns the state of a series, unknown where it cannot be judged yet, and its alerts as texts.
Judge = Callable[[Sequence[Window], float], tuple[Kind, list[str]]]
# What is reported where no file of rules is given: errors that burn what 99 % allow.
DEFAULT_RULES = tuple(
    WindowRule(name="objective", kind="objective", series=series) for series in (LATENCY, REQUEST)
)


def judge(
    rules: Sequence[Rule],
    window_rules: Sequence[WindowRule] = DEFAULT_RULES,
    stored: StoredJudgements | None = None,
) -> Judge:
    """Return what holds windows of an hour against rules.

    Objectives and thresholds of windows are judged here; levels and growth, which need days, by
    what a history has. A window of more than five minutes, such as the first look at what ran
    before, is not evidence about now.
    """
    thresholds = [
        rule for rule in rules if rule.kind == "threshold" and rule.metric.startswith(PREFIX)
    ]
    objectives = [rule for rule in window_rules if rule.kind == "objective"]

    def judged(windows: Sequence[Window], now: float) -> tuple[Kind, list[str]]:
        recent = [window for window in windows if window.end - window.begin <= SHORT]
        series = window_series(recent, now) if recent and thresholds else []
        fitting = [rule for rule in objectives if rule.fits(windows[-1])]
        results = [window_alerts(rule, recent, now) for rule in fitting]
        results += [alerts(rule, series) for rule in thresholds if any(map(rule.fits, series))]
        results += [] if stored is None else stored.alerts(windows[-1])
        texts = [f"{alert.rule}: {alert.message}" for result in results for alert in result or []]
        if texts or not results:
            return ("alert" if texts else "unruled"), texts
        return ("unknown" if None in results else "steady"), []

    return judged
