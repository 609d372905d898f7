"""What the page says about a history, figure by figure."""

import pytest
from tests.support import history_runs as runs
from tests.support.live_sites import history

from torchgauge.analyze.history.alerts import Rule
from torchgauge.errors import InputError, StoreError
from torchgauge.history.store import Store
from torchgauge.history.trend import trend
from torchgauge.live import history_view
from torchgauge.records.trend import Trend
from torchgauge.report.page import page_trend

DAYS = 40


def latency(day):
    return (0.010 if day < 30 else 0.011) * (1.003 if day % 2 else 0.997)


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    """Forty days of a target whose level rose after thirty, and one run of another target."""
    file = tmp_path_factory.mktemp("history") / "h.db"
    with Store.open(str(file)) as store:
        for day in range(DAYS):
            store.add(runs.run(day, latency=latency(day), layers={"body.0": 1000 + day}))
        store.add(runs.run(99, target="<b>other</b>"))
    return file


@pytest.fixture(scope="module")
def view(location):
    view = history(location)
    yield view
    view.close()


def test_a_row_for_each_target_the_newest_first(view):
    fleet = view.fleet()
    assert (fleet["targets"], fleet["fitting"], fleet["runs"]) == (2, 2, DAYS + 1)
    other, net = fleet["rows"]
    assert other["target"] == "<b>other</b>"
    assert other["state"]["kind"] == "unknown"
    assert "latency_median" in other["state"]["unjudged"]
    assert net["target"] == "net.py:make"
    assert net["place"] == "main · cpu · fp32 · A CPU"
    assert net["runs"] == DAYS
    assert net["newest"] == "2026-02-09T00:00:00.000000+00:00"
    assert net["main"] == {"name": "latency_median", "value": "11.03 ms", "how": "measured"}
    assert net["curve"] == [float(f"{latency(day):.4g}") for day in range(DAYS)]
    assert [figure and figure["name"] for figure in net["side"]] == ["memory_peak", "parameters"]
    assert net["state"]["kind"] == "alert"
    (alert,) = net["state"]["alerts"]
    assert alert.startswith("change: latency_median changed by +10.0 % after c")


def test_part_of_a_name_and_a_limit(view):
    assert [row["target"] for row in view.fleet("NET")["rows"]] == ["net.py:make"]
    limited = view.fleet(limit=1)
    assert (len(limited["rows"]), limited["fitting"]) == (1, 2)
    assert view.fleet("nothing")["rows"] == []


def test_a_target_with_its_runs(view):
    key = view.fleet("net")["rows"][0]["key"]
    target = view.target(key)
    assert [series["runs"] for series in target["series"]] == [DAYS]
    assert target["chosen"] == target["series"][0]["key"]
    assert target["metrics"][0] == "latency_median"
    assert [run["commit"] for run in target["newest"]] == [f"c{day}" for day in range(39, -1, -1)]
    assert target == view.target(key, target["chosen"])


def test_the_trend_is_that_of_the_command_line(view, location):
    key = view.fleet("net")["rows"][0]["key"]
    shown = view.trend(key, "", "latency_median")
    assert shown["runs"] == DAYS
    assert shown["first"] == 0
    assert shown["at"] == list(range(1, DAYS + 1))
    assert shown["values"] == pytest.approx([latency(day) * 1e9 for day in range(DAYS)], rel=1e-6)
    with Store.open(str(location), create=False) as store:
        (series,) = (
            one for one in trend(store, metrics=["latency_median"]).series if len(one.points) > 1
        )
    expected = page_trend.series(Trend(store="", series=(series,)))
    assert shown["series"] == expected["series"]
    assert [change["size"] for change in shown["series"][0]["changes"]] == ["+10.0 %"]
    assert shown["newest"] == [point.run for point in series.points]


def test_changes_are_searched_in_the_newest_runs(view, monkeypatch):
    from torchgauge.live import history_reader as judgements

    for module in (history_view, judgements):
        monkeypatch.setattr(module, "ANALYZED_RUNS", 12)
    key = view.fleet("net")["rows"][0]["key"]
    shown = view.trend(
        key, "", "flops" if "flops" in view.target(key)["metrics"] else "memory_peak"
    )
    assert shown["runs"] == DAYS
    assert shown["first"] == DAYS - 12
    assert len(shown["series"][0]["values"]) == 12


def test_all_runs_are_read_in_parts_and_again_only_where_one_was_removed(tmp_path, monkeypatch):
    from torchgauge.history import fleet
    from torchgauge.live import history_reader as judgements

    for module in (history_view, judgements):
        monkeypatch.setattr(module, "ANALYZED_RUNS", 3)
    monkeypatch.setattr(history_view, "CHUNK", 2)
    read, original = [], fleet.values
    monkeypatch.setattr(fleet, "values", lambda *arguments: read.append(1) or original(*arguments))
    with Store.open(str(tmp_path / "h.db")) as store:

        def shown():
            read.clear()
            key = view.fleet()["rows"][0]["key"]
            return [value / 1e9 for value in view.trend(key, "", "latency_median")["values"]]

        for day in range(5):
            store.add(runs.run(day, latency=0.01 + day / 1000))
        view = history(store.display_name)
        assert shown() == pytest.approx([0.01, 0.011, 0.012, 0.013, 0.014])
        assert len(read) == 3
        store.add(runs.run(5, latency=0.02))
        assert shown()[-2:] == pytest.approx([0.014, 0.02])
        assert len(read) == 1
        oldest = min(store.runs(), key=lambda run: run.created)
        assert store.remove([oldest.uuid]) == 1
        assert shown() == pytest.approx([0.011, 0.012, 0.013, 0.014, 0.02])
    view.close()


def test_rules_of_a_file(location):
    rules = (
        Rule(name="slow", kind="threshold", metric="latency_median", limit=0.0105, unit="s"),
        Rule(name="body", kind="threshold", metric="host_time", layer="body.*", limit=1, unit="s"),
    )
    view = history(location, rules)
    state = view.fleet("net")["rows"][0]["state"]
    assert state["kind"] == "alert"
    assert [alert.partition(":")[0] for alert in state["alerts"]] == ["slow"]
    assert view.fleet("other")["rows"][0]["state"]["kind"] == "steady"
    view.close()


@pytest.mark.parametrize("part", ["judgement", "_figure"])
def test_a_failure_is_shown_at_its_target_alone(location, monkeypatch, part):
    original = getattr(history_view, part)

    def failing(*arguments):
        if len(arguments) == 1 or "net.py:make" in arguments:
            raise ZeroDivisionError("nothing to divide by")
        return original(*arguments)

    monkeypatch.setattr(history_view, part, failing)
    view = history(location)
    other, net = view.fleet()["rows"]
    assert net["state"]["kind"] == "failed"
    assert net["runs"] == DAYS
    (text,) = net["state"]["alerts"]
    assert text.endswith("ZeroDivisionError: nothing to divide by")
    if part == "judgement":
        assert net["main"]["value"] == "11.03 ms"
        assert other["state"]["kind"] == "unknown"
        assert view.target(net["key"])["state"] == net["state"]
    view.close()


def test_what_is_not_there(view):
    key = view.fleet("net")["rows"][0]["key"]
    for ask in (
        lambda: view.target("0" * 16),
        lambda: view.target(key, "0" * 16),
        lambda: view.trend(key, "", "nothing"),
        lambda: view.page("0" * 36),
    ):
        with pytest.raises(InputError) as raised:
            ask()
        assert raised.value.id in ("live-unknown", "run-unknown")


def test_runs_that_come_are_seen(tmp_path):
    with Store.open(str(tmp_path / "h.db")) as store:
        store.add(runs.run(0))
        view = history(store.display_name)
        assert view.fleet()["rows"][0]["curve"] == [0.01]
        store.add(runs.run(1, latency=0.02))
        assert view.fleet()["rows"][0]["curve"] == [0.01, 0.02]
        store.add(runs.run(2, target="new.py:make"))
        assert [row["target"] for row in view.fleet()["rows"]] == ["new.py:make", "net.py:make"]
    view.close()


def test_a_history_that_is_moved_away_and_comes_back(tmp_path):
    file, hidden = tmp_path / "h.db", tmp_path / "hidden.db"
    with Store.open(str(file)) as store:
        store.add(runs.run(0))
    view = history(file)
    assert view.fleet()["runs"] == 1
    file.rename(hidden)
    with pytest.raises(StoreError) as raised:
        view.fleet()
    assert raised.value.id == "store-missing"
    hidden.rename(file)
    assert view.fleet()["runs"] == 1
    view.close()
