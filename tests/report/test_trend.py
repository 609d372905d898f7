"""Trends for a terminal: what is drawn is what was measured."""

import pytest
from tests.analyze.test_alerts import change, series

from torchgauge.model.trend import Alert, Trend
from torchgauge.report.sparkline import sparkline
from torchgauge.report.trend import line


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([], 5, ""),
        ([3], 5, "▄"),
        ([2, 2, 2], 5, "▄▄▄"),
        ([0, 7], 5, "▁█"),
        (range(8), 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 0, 7, 7, 7], 2, "▁█"),
        ([0, 90, 0, 7, 7, 7], 2, "▁█"),  # one run of three is no level
        ([-1, 1], 5, "▁█"),
    ],
)
def test_sparklines(values, width, drawn):
    assert sparkline(list(values), width) == drawn


def text(*found, **more):
    return str(Trend(store="h.db", series=found, **more))


def test_figures_have_their_units():
    shown = text(
        series([0.01, 0.02]),
        series([10**6, 10**6], metric="memory_peak", unit="B"),
        series([50.0], metric="throughput_samples", unit="1/s"),
        series([0.2], metric="machine_busy", unit="ratio"),
        series([0, 5], metric="unknown_calls", unit=""),
    )
    rows = {line.split()[0]: line.split()[2:] for line in shown.splitlines()[3:8]}
    assert rows == {
        "latency_median": ["20.00", "ms", "+100.0", "%", "2"],
        "memory_peak": ["1.000", "MB", "=", "2"],
        "throughput_samples": ["50.00", "/s", "=", "1"],
        "machine_busy": ["20.00", "%", "=", "1"],
        "unknown_calls": ["5", "2"],  # from 0 there is no share
    }


def test_what_went_away_is_not_called_a_regression():
    gone = change(1, 0.05, lasting="went away", note="")
    stays = change(2, 0.07, software="torch 2.12 → 2.13")
    shown = text(series([1.0] * 5, changes=(gone, stays)))
    first, second = (one for one in shown.splitlines() if "%" in one and "after" in one)
    assert first.strip().startswith("· +5.0 %")
    assert second.strip().startswith("▲ +7.0 %")
    assert "went away since" in shown
    assert "torch 2.12 → 2.13" in shown
    better = text(series([1.0] * 5, changes=(change(2, -0.07),)))
    assert "▼ -7.0 %" in better


def test_many_layers_are_cut_where_least_moved():
    many = [series([1.0, 1.0], layer=f"l{i}") for i in range(25)]
    moved = series([1.0, 2.0], layer="slow", changes=(change(1, 1.0),))
    shown = text(*many, moved)
    assert "6 more moved less" in shown
    assert shown.index("slow") < shown.index("l0")


def test_an_alert_is_one_line_whatever_the_names_hold():
    alert = Alert(
        rule="a\nb", target="t\n", branch="", machine="0123456789", metric="m", layer="x",
        message="is\nslow", value=1.0, limit=0.5, unit="s",
    )  # fmt: skip
    assert line(alert) == "ALERT a b: x m: is slow [t · machine 01234567]"
    assert line(alert) in text(series([1.0]), alerts=(alert,)).replace("\n", " ")


def test_markup_in_names_is_text():
    assert "[red]" in text(series([1.0], target="[red]x", branch="[/b]"))


def test_nothing_is_said_to_be_nothing():
    assert text() == "No run of the history has such a figure."
