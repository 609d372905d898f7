"""Alerts on windows of monitors, and windows as series for the rules of the history."""

import math

import pytest
from msgspec.structs import replace
from tests.support.histograms import histogram_of

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.window_alerts import (
    Objective,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.records.monitoring.window import Window
from torchgauge.report.content.trend import line

NOW = 1_700_000_000.0
OBJECTIVE = WindowRule("p99", "objective", objective=Objective(0.99, 0.1))


def window(end=0.0, values=(0.01,), process="1", monitor="api", seconds=60.0, **fields):
    labels = {"monitor": monitor, "process": process}
    usual = {"count": len(values), "begin": NOW + end - seconds, "end": NOW + end}
    return Window(
        series="latency", labels=labels, histogram=histogram_of(values),
        **(usual | fields),
    )  # fmt: skip


def test_an_objective_is_of_all_processes_of_a_monitor_together():
    calm = [window(values=[0.01] * 100, process="2")]
    assert window_alerts(OBJECTIVE, calm, NOW) == []
    (alert,) = window_alerts(OBJECTIVE, [*calm, window(values=[1.0] * 50)], NOW)
    assert (alert.target, alert.metric, alert.limit) == ("api", "monitor_latency", 14.4)
    assert alert.value == pytest.approx(50 / 150 / 0.01)
    assert "burns ×33.3" in alert.message
    assert "99 % of calls shall take at most 100.0 ms" in alert.message
    assert line(alert).endswith("[api]")


def test_a_monitor_without_calls_is_unknown_and_no_pass():
    assert window_alerts(OBJECTIVE, [], NOW) is None
    assert window_alerts(OBJECTIVE, [window(-7200)], NOW) is None
    other = WindowRule("r", "objective", monitor="web*")
    assert window_alerts(other, [window()], NOW) is None


def test_a_level_that_rose_is_told_for_a_day_and_one_of_days_ago_is_not():
    values = [0.1 * math.exp(0.02 * (k % 7 - 3)) for k in range(60)]
    usual, slower = window(values=values), window(values=[1.2 * value for value in values])

    def series(at):
        return [
            replace(
                slower if end > at else usual,
                begin=NOW - 8 * 86400 + end - 600,
                end=NOW - 8 * 86400 + end,
            )
            for end in range(600, 8 * 86400 + 1, 600)
        ]

    rule = WindowRule("slower", "level")
    (alert,) = window_alerts(rule, series(7.8 * 86400), NOW)
    assert alert.value == pytest.approx(0.2, abs=0.02)
    assert "level changed by +2" in alert.message
    assert window_alerts(rule, series(6.2 * 86400), NOW) == []
    assert window_alerts(rule, series(9 * 86400), NOW) == []
    assert window_alerts(rule, series(7.8 * 86400), NOW + 7200) is None
    assert window_alerts(rule, series(7.8 * 86400)[-200:], NOW) is None


def test_windows_are_series_for_rules_on_the_newest_figure():
    windows = [
        window(-300, [0.5] * 10),
        window(0, [0.01] * 80, errors={"ValueError": 4}, count=84),
        window(0, [1.0] * 20, process="2"),
    ]
    by_name = {series.metric: series for series in window_series(windows, NOW)}
    p50, rate = by_name["monitor_latency_p50"], by_name["monitor_latency_rate"]
    assert p50.values == pytest.approx((0.5, 0.01), rel=0.012)
    assert (p50.unit, rate.unit) == ("s", "1/s")
    assert rate.values[-1] == pytest.approx(104 / 60)
    assert by_name["monitor_latency_errors"].values[-1] == pytest.approx(4 / 104)
    slow = Rule("slow", "threshold", "monitor_latency_p99", 0.2, "s", target="a*")
    (alert,) = alerts(slow, list(by_name.values()))
    assert alert.value == pytest.approx(1.0, rel=0.012)
    assert window_series(windows, NOW + 7200) == []
