"""Rules on windows of monitors that a history has."""

import pytest
from tests.support.histograms import histogram_of

from torchgauge.analyze.history.alerts import Rule
from torchgauge.analyze.monitoring.window_alerts import Objective, WindowRule
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows, watch
from torchgauge.records.monitoring.window import Window

NOW = 1_700_000_000.0
OBJECTIVE = WindowRule("goal", "objective", objective=Objective(0.99, 0.1))
SLOW = Rule("slow", "threshold", "monitor_latency_p99", 0.5, "s")


@pytest.fixture
def store(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/history.db") as opened:
        for process, value in (("1", 0.01), ("2", 1.0)):
            histogram = histogram_of([value] * 50)
            window = Window(
                series="latency", labels={"monitor": "api"}, begin=NOW - 120, end=NOW - 60,
                count=50, histogram=histogram,
            )  # fmt: skip
            add_windows(opened, [window], process)
        yield opened


def test_rules_on_windows_of_a_history(store):
    result = watch(store, [SLOW], window_rules=[OBJECTIVE], now=NOW)
    slow, goal = result.alerts
    assert (slow.rule, slow.target, slow.value) == ("slow", "api", pytest.approx(1.0, rel=0.012))
    assert goal.value == pytest.approx(50.0)
    assert result.unmatched == ()
    assert {series.metric for series in result.series} == {"monitor_latency_p99"}


def test_a_monitor_that_fell_silent_is_unknown(store):
    level = WindowRule("level", "level")
    result = watch(store, [SLOW], window_rules=[OBJECTIVE, level], now=NOW + 7200)
    assert result.alerts == ()
    assert result.unmatched == ("slow", "goal", "level")
