"""Trends for a terminal: what is drawn is what was measured."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.support.alert_series import change, series

from torchgauge.records.trend import Alert, Trend, TrendCorrection
from torchgauge.report.console.console import view
from torchgauge.report.console.line import sparkline
from torchgauge.report.content.document import Options
from torchgauge.report.content.trend import line
from torchgauge.report.page import page_trend


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


def corrected(count=12, without=(), **more):
    """Return a latency of 10 or 12 ms by turns, of which the machine explains all."""
    known = series([0.010 + 0.002 * (at % 2) for at in range(count)])
    points = tuple(
        point if at in without else replace(point, corrected=0.011, scope="runs")
        for at, point in enumerate(known.points)
    )
    runs = count - len(without)
    correction = TrendCorrection(before=0.13, after=0.02, runs=runs)
    return replace(known, points=points, correction=correction, **more)


def rows(shown):
    return [" ".join(row.split()) for row in shown.splitlines()]


def test_a_corrected_latency_stands_beside_the_measured_one():
    shown = text(corrected(changes=(change(6, 0.1),), changes_in="corrected"))
    (row,) = (row for row in rows(shown) if row.startswith("corrected"))
    assert row == "corrected (estimated) ▄▄▄▄▄▄▄▄▄▄▄▄ 11.00 ms = 12"
    assert "latency_median by 2.0 % instead of 13 %." in " ".join(rows(shown))
    assert "latency_median changed (estimated, at the machine's usual speed)" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_runs_without_a_corrected_latency_are_unknown():
    found = corrected(without=(2, 11))
    shown = " ".join(rows(text(found)))
    assert "corrected (estimated) ▄▄▄▄▄▄▄▄▄▄ unknown 10" in shown
    assert "(2 of 12 runs unknown: changes refer to the measured values)" in shown
    console = Console(width=80, file=io.StringIO())
    console.print(view(Trend(store="h.db", series=(found,)), Options(points=2), width=80))
    lines = rows(console.file.getvalue())
    assert any("c10 run10 10.00 ms 11.00 ms" in line for line in lines)
    assert any("c11 run11 12.00 ms unknown" in line for line in lines)
    assert "Intervals: 1 across processes of one run." in lines


def test_the_page_has_the_corrected_values_as_a_series():
    changes = (change(6, 0.1),)
    found = corrected(without=(2,), changes=changes)
    measured, of_corrected = page_trend.series(Trend(store="", series=(found,)))["series"]
    assert measured["values"][2] == 1e7
    assert of_corrected["values"][2:4] == [None, 1.1e7]
    assert (measured["how"], of_corrected["how"]) == ("measured", "estimated")
    assert (len(measured["changes"]), of_corrected["changes"]) == (1, [])
    found = corrected(changes=changes, changes_in="corrected")
    measured, of_corrected = page_trend.series(Trend(store="", series=(found,)))["series"]
    assert (measured["changes"], len(of_corrected["changes"])) == ([], 1)
    assert of_corrected["name"] == "latency_median at the machine's usual speed"


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
    assert "▼ −7.0 %" in better


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
