"""Load in the history: a run for each level and one for the capacity, trends, and gates on them."""

import msgspec
import pytest
from tests.support import servings

from torchgauge.cli.main import main
from torchgauge.history.imports import entries
from torchgauge.history.store import Store
from torchgauge.history.trend import trend
from torchgauge.records.record import Interval
from torchgauge.records.run import Facts
from torchgauge.records.serving.requests import Capacity


@pytest.fixture
def saved(tmp_path):
    """Save a run of a day whose capacity is given; returns its file."""

    def save(day, rate=104.0):
        record = servings.capacity_found()
        created = f"2026-01-0{day}T03:04:05+00:00"
        environment = msgspec.structs.replace(record.environment, created=created)
        capacity = Capacity(rate=rate, interval=Interval(low=0.96 * rate, high=1.04 * rate))
        record = msgspec.structs.replace(record, environment=environment, capacity=capacity)
        return record.save(tmp_path / f"{day}.json")

    return save


def add(store, *paths):
    return main(["history", "add", "--store", str(store), *map(str, paths)])


def test_every_level_and_the_capacity_are_runs(saved):
    runs = [entry.run for entry in entries(saved(1), Facts())]
    assert [run.model for run in runs] == [
        "Net, 25 requests/s", "Net, 50 requests/s", "Net, 100 requests/s", "Net, 150 requests/s",
        "Net, p99<100ms",
    ]  # fmt: skip
    assert len({run.workload for run in runs}) == 5


def test_trend_has_a_series_for_each_level_and_the_capacity(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    rates = (100.0, 104.0, 102.0)
    assert add(store, *(saved(day, rate) for day, rate in enumerate(rates, 1))) == 0
    with Store.open(str(store), create=False) as opened:
        series = trend(opened).series
    (capacity,) = [one for one in series if one.metric == "serving_capacity"]
    assert capacity.values == rates
    latencies = [one for one in series if one.metric == "serving_latency_p99"]
    assert len(latencies) == 4
    assert main(["history", "trend", "--store", str(store)]) == 0
    assert "Net, 100 requests/s · " in capsys.readouterr().out


def test_a_gate_against_the_history_takes_the_same_loads(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    assert add(store, saved(1), saved(2)) == 0
    command = ["gate", "--baseline", "history", "--store", str(store), "--metric", "capacity"]
    assert main([*command, str(saved(3, 40.0))]) == 3
    assert "capacity" in capsys.readouterr().out
    assert main([*command, "--tolerance", "capacity:10%:60%", str(saved(4))]) == 0


def test_a_level_is_shown(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    assert add(store, saved(1)) == 0
    with Store.open(str(store), create=False) as opened:
        uuids = {run.model: run.uuid for run in opened.runs()}
    capsys.readouterr()
    assert main(["history", "show", "--store", str(store), uuids["Net, 100 requests/s"]]) == 0
    assert "answered/s" in capsys.readouterr().out
    assert main(["history", "show", "--store", str(store), uuids["Net, p99<100ms"]]) == 0
    assert "104 requests/s (99.8 … 108)" in capsys.readouterr().out


def test_load_without_a_level_is_refused(tmp_path, capsys):
    path = servings.without_levels().save(tmp_path / "none.json")
    assert add(tmp_path / "h.db", path) == 2
    assert "without a level of load" in capsys.readouterr().err
