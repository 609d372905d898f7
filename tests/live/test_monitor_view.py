"""What the page says about monitors, with a clock that the test moves."""

import pytest
from tests.support.histograms import histogram_of
from tests.support.live_sites import Clock, monitors

from torchgauge.errors import InputError
from torchgauge.live.monitor_view import HELD_WINDOWS, LOOK, MAX_SERIES, MonitorView, bars
from torchgauge.records.monitoring.histogram import Histogram, boundary
from torchgauge.records.monitoring.window import Window


def window(values, begin, end, **more):
    return Window(
        **{"series": "latency", "labels": {"monitor": "chat", "kind": "x"}, "count": len(values)}
        | more,
        begin=begin,
        end=end,
        histogram=histogram_of(values),
    )


class Looks:
    """Returns at each look what the test puts there."""

    def __init__(self):
        self.windows = []
        self.clock = Clock(1000.0)
        self.view = MonitorView(
            "folder", lambda: self.windows, lambda *_: ("steady", []), self.clock
        )

    def look(self, *windows):
        self.windows = windows
        self.clock.now += LOOK
        self.view.update()


@pytest.mark.parametrize(("series", "error"), [(MAX_SERIES, None), (MAX_SERIES + 1, "live-many")])
def test_a_list_that_leaves_out_series_says_so(series, error):
    looks = Looks()
    empty = [window([], 1000, 1004, labels={"monitor": str(number)}) for number in range(series)]
    looks.look(*empty)
    rows = looks.view.rows()
    assert (len(rows["rows"]), (rows["error"] or {}).get("id")) == (MAX_SERIES, error)


def test_a_row_of_exact_figures():
    looks = Looks()
    looks.look(window([1.0] * 8, 500, 1004))
    looks.look(window([0.5] * 9 + [2.0], 1004, 1009, count=12, errors={"E": 3}))
    (row,) = looks.view.rows()["rows"]
    assert row["name"] == "chat latency"
    assert row["labels"] == "kind x"
    assert row["unit"] == "time"
    assert row["rate"] == 12 / LOOK
    assert row["errors"] == 0.25
    assert row["middle"] == pytest.approx(0.5e9, rel=0.011)
    assert row["high"] == pytest.approx(2.0e9, rel=1e-4)  # the largest is exact
    assert row["curve"] == [pytest.approx(1.0e9, rel=1e-4), pytest.approx(2.0e9, rel=1e-4)]
    assert row["state"]["kind"] == "steady"


def test_windows_of_a_look_begin_where_the_one_before_ended():
    """The first is all since the process began; one that is written seldom keeps its time."""
    looks = Looks()
    looks.look(window([1.0], 0, 1004))
    looks.look(window([1.0], 1004.2, 1009.1))
    looks.look(window([1.0], 1000, 1060))
    (row,) = looks.view.rows()["rows"]
    shown = looks.view.series(row["key"])
    assert shown["end"] == [1004, 1010, 1060]
    assert [looks.view.series(row["key"], end)["window"]["begin"] for end in shown["end"]] == [
        0,
        1005,
        1000,
    ]
    assert looks.view.series(row["key"], 77.0)["window"] is None


def test_late_windows_take_their_place_and_those_that_ended_together_are_one():
    looks = Looks()
    looks.clock.now = 100_000.0
    looks.look(window([1.0] * 3, 99_880, 99_940), window([1.0] * 4, 99_940.1, 100_000.1))
    looks.look(window([2.0], 99_940.8, 100_000.9), window([2.0] * 2, 99_820, 99_880))
    looks.look(window([3.0] * 5, 99_880.5, 99_900))
    (row,) = looks.view.rows()["rows"]
    shown = looks.view.series(row["key"])
    assert shown["end"] == [99_880, 99_900, 99_940, 100_000.9]
    windows = [looks.view.series(row["key"], end)["window"] for end in shown["end"]]
    assert [(one["count"], one["begin"]) for one in windows] == [
        (2, 99_820), (5, 99_880.5), (3, 99_880), (5, 99_940.1),
    ]  # fmt: skip
    assert row["rate"] == pytest.approx(5 / 60.8, rel=1e-4)


def test_a_window_of_the_time_before_the_last_look_is_not_of_this_one():
    looks = Looks()
    looks.look(window([1.0], 0, 1004))
    looks.look(window([1.0] * 2, 1004.2, 1009.1))
    looks.look(window([1.0] * 3, 980.0, 984.0))
    (row,) = looks.view.rows()["rows"]
    assert looks.view.series(row["key"])["end"] == [984, 1004, 1010]


def test_the_distribution_of_one_window():
    looks = Looks()
    values = [0.001, 0.0011, 0.004, 0.0]
    looks.look(window(values, 1000, 1004, count=6, errors={"b": 1, "a": 1}))
    (row,) = looks.view.rows()["rows"]
    shown = looks.view.series(row["key"])["window"]
    assert (shown["count"], shown["measured"], shown["zero"]) == (6, 4, 1)
    assert sum(shown["counts"]) == 3
    assert len(shown["edges"]) == len(shown["counts"]) + 1
    assert shown["edges"][0] < 0.001e9 < shown["edges"][1] * 1.03
    assert shown["errors"] == [["a", 1], ["b", 1]]
    assert shown["max"] == pytest.approx(0.004e9)
    assert shown["mean"] == pytest.approx(sum(values) / 4 * 1e9, rel=1e-4)


def test_bars_are_few_and_hold_every_value():
    histogram = histogram_of([0.001 * 1.01**power for power in range(1_000)])
    edges, counts = bars(histogram, 20)
    assert len(counts) <= 20
    assert sum(counts) == 1_000
    assert edges[0] == boundary(histogram.offset)
    assert edges[-1] >= histogram.max
    assert bars(Histogram()) == ([], [])


def test_a_series_that_falls_silent():
    looks = Looks()
    looks.look(window([1.0], 1000, 1004))
    for _ in range(7):
        looks.look()
    (row,) = looks.view.rows()["rows"]
    assert row["state"]["kind"] == "silent"
    assert row["age"] == 36


def test_alerts_and_what_cannot_be_judged():
    for judged in (("alert", ["broken"]), ("steady", []), ("unknown", []), ("unruled", [])):
        view = monitors(looks=2, judge=lambda _windows, _now, judged=judged: judged)
        state = view.rows()["rows"][0]["state"]
        assert (state["kind"], state["alerts"]) == judged


def test_a_judgement_that_fails_is_shown_at_its_series_alone():
    def judge(windows, _now):
        if windows[-1].labels["monitor"] == "bad":
            raise KeyError("rule")
        return "steady", []

    bad, good = monitors(("bad", "good"), looks=2, judge=judge).rows()["rows"]
    assert (bad["state"]["kind"], good["state"]["kind"]) == ("failed", "steady")
    assert "KeyError: 'rule'" in bad["state"]["alerts"][0]


def test_a_look_that_fails_is_said_and_the_next_one_succeeds():
    looks = Looks()
    looks.look(window([1.0], 1000, 1004))
    looks.look(None)  # a defect of ours
    assert looks.view.rows()["error"]["id"] == "live-failed"
    assert len(looks.view.rows()["rows"]) == 1
    looks.look(window([1.0], 1009, 1014))
    assert looks.view.rows()["error"] is None


def test_layers_are_with_their_monitor():
    view = monitors(looks=3)
    (row,) = view.rows()["rows"]
    (layer,) = view.series(row["key"])["layers"]
    assert layer["layer"] == "encoder.0"
    assert layer["measured"] == 6
    assert layer["middle"] == pytest.approx(0.001e9, rel=0.011)


def test_an_hour_is_held():
    looks = Looks()
    for _ in range(HELD_WINDOWS + 5):
        looks.look(window([1.0], looks.clock.now, looks.clock.now + LOOK))
    (row,) = looks.view.rows()["rows"]
    assert len(looks.view.series(row["key"])["end"]) == HELD_WINDOWS


def test_an_unknown_series():
    with pytest.raises(InputError) as raised:
        Looks().view.series("0" * 16)
    assert raised.value.id == "live-unknown"
