"""Rules on the windows of a live series."""

from tests.support.histograms import histogram_of

from torchgauge.analyze.history.alerts import Rule
from torchgauge.live.monitor_view import judge
from torchgauge.records.monitoring.window import Window

NOW = 100_000.0


def windows(failed, *, series="latency", length=60.0, value=0.010, unit="s"):
    """Return an hour of windows of 100 calls each, so many of which failed."""
    count = int(3600 / length)
    return [
        Window(
            series=series,
            unit=unit,
            labels={"monitor": "chat"},
            begin=NOW - (number + 1) * length,
            end=NOW - number * length,
            count=100,
            errors={"E": failed} if failed else {},
            histogram=histogram_of([value] * (100 - failed)),
        )
        for number in reversed(range(count))
    ]


def test_errors_that_burn_what_99_percent_allow():
    judged = judge(())
    assert judged(windows(0), NOW) == ("steady", [])
    kind, (text,) = judged(windows(50), NOW)
    assert kind == "alert"
    assert text.startswith("objective: burns ×50.0 of what is allowed in an hour")
    assert judged(windows(50, series="request"), NOW)[0] == "alert"


def test_a_series_that_no_rule_is_about():
    assert judge(())(windows(0, series="memory", unit="B"), NOW) == ("unruled", [])


def test_what_ran_before_the_first_look_is_no_evidence_about_now():
    """A window of an hour, all of whose calls failed, ended now."""
    assert judge(())(windows(99, length=3600.0), NOW) == ("unknown", [])


def test_a_threshold_on_the_newest_five_minutes():
    rule = Rule("slow", "threshold", "monitor_latency_p99", 0.005, "s")
    assert judge([rule], ())(windows(0), NOW)[0] == "alert"
    assert judge([rule], ())(windows(0, value=0.004), NOW) == ("steady", [])
    assert judge([rule], ())(windows(0, series="queue"), NOW) == ("unruled", [])


def test_rules_that_need_days_are_left_to_the_history():
    growth = Rule("grows", "growth", "monitor_latency_p99", 0.1, "ratio")
    assert judge([growth], ())(windows(0), NOW) == ("unruled", [])
