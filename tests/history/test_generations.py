"""Generations in the history: a run for each shape, a series for each shape, and gates on them."""

import msgspec
import pytest
from tests.support import generations, records

from torchgauge.cli.main import main
from torchgauge.history.imports import entries
from torchgauge.history.store import Store
from torchgauge.history.trend import trend
from torchgauge.records.run import Facts


@pytest.fixture
def saved(tmp_path):
    """Three runs of one grid, days apart: 1 %, 0 % and −1 % slower; returns their files."""

    def save(day, slower):
        record = generations.grid(slower)
        environment = msgspec.structs.replace(
            record.environment, created=f"2026-01-0{day}T03:04:05+00:00"
        )
        record = msgspec.structs.replace(record, environment=environment)
        return record.save(tmp_path / f"{day}.json")

    return save


def add(store, *paths):
    return main(["history", "add", "--store", str(store), *map(str, paths)])


def test_every_measured_shape_is_a_run(saved):
    runs = [entry.run for entry in entries(saved(1, 1.0), Facts())]
    assert [run.model for run in runs] == [
        "TinyLlama, batch 1, prompt 128, dynamic cache",
        "TinyLlama, batch 1, prompt 1,024, dynamic cache",
        "TinyLlama, batch 4, prompt 128, dynamic cache",
    ]
    assert len({run.workload for run in runs}) == 3
    assert {run.target for run in runs} == {"model.py:make"}


def test_list_distinguishes_the_shapes_of_a_record(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    add(store, saved(1, 1.0))
    assert main(["history", "list", "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    shapes = ("batch 1, prompt 128,", "batch 1, prompt 1,024,", "batch 4, prompt 128,")
    assert [shape in line for shape, line in zip(shapes, lines, strict=True)] == [True] * 3


def test_trend_has_a_series_for_each_shape(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    assert (
        add(store, *(saved(day, slower) for day, slower in ((1, 1.01), (2, 1.0), (3, 0.99)))) == 0
    )
    assert add(store, tmp_path / "1.json") == 0
    assert "3 were there already" in capsys.readouterr().err
    with Store.open(str(store), create=False) as opened:
        series = [one for one in trend(opened).series if one.metric == "generation_tpot"]
    first = generations.cell(1, 128).tpot.value
    values = {one.model.split(", dynamic")[0]: one.values for one in series}
    assert len(values) == 3
    assert values["TinyLlama, batch 1, prompt 128"] == pytest.approx(
        [1.01 * first, first, 0.99 * first]
    )
    assert all(point.low < point.value < point.high for one in series for point in one.points)
    assert main(["history", "trend", "--store", str(store)]) == 0
    assert "TinyLlama, batch 4, prompt 128, dynamic cache · " in capsys.readouterr().out


def test_a_gate_against_the_history_takes_the_same_shapes(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    assert add(store, saved(1, 1.0), saved(2, 1.0)) == 0
    gate = ["gate", "--baseline", "history", "--store", str(store)]
    assert main([*gate, str(saved(3, 1.5))]) == 3
    assert "ttft, tpot, tokens (9 of 13)" in capsys.readouterr().out
    steady = [f"{name}:10%:60%" for name in ("ttft", "tpot", "tokens")]
    tolerances = [part for text in steady for part in ("--tolerance", text)]
    assert main([*gate, *tolerances, str(saved(4, 1.0))]) == 0


def test_a_run_is_shown_with_its_shape(saved, tmp_path, capsys):
    store = tmp_path / "h.db"
    assert add(store, saved(1, 1.0)) == 0
    with Store.open(str(store), create=False) as opened:
        uuid = opened.runs()[0].uuid
    capsys.readouterr()
    assert main(["history", "show", "--store", str(store), uuid]) == 0
    shown = capsys.readouterr().out
    assert "TTFT" in shown
    assert "Decode step" in shown


def test_a_generation_without_a_shape_is_refused(tmp_path, capsys):
    path = generations.without_times().save(tmp_path / "none.json")
    assert add(tmp_path / "h.db", path) == 2
    assert "[history-kind]" in capsys.readouterr().err


def test_a_profile_is_still_one_run(tmp_path):
    path = records.profile().save(tmp_path / "profile.json")
    assert len(list(entries(path, Facts()))) == 1


def test_other_numbers_of_new_tokens_are_another_series(tmp_path):
    workloads = set()
    for count in (8, 16):
        path = generations.single(new_tokens=count).save(tmp_path / f"{count}.json")
        workloads |= {entry.run.workload for entry in entries(path, Facts())}
    assert len(workloads) == 2
