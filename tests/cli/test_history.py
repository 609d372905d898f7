"""`torchgauge history`, as a user types it."""

import contextlib
import io
import json
import shutil
import time

import pytest
from tests.support import history_runs as runs

from torchgauge.cli.main import main
from torchgauge.errors import StoreError
from torchgauge.history.imports import json_lines, save_to_file
from torchgauge.history.store import Store
from torchgauge.history.windows import add_windows, read_windows
from torchgauge.records import codec
from torchgauge.records.monitoring.window import Window
from torchgauge.records.trend import Trend

ALERTS = """
[[threshold]]
name = "fast"
metric = "latency_median"
above = "10.5ms"
[[change]]
metric = "latency_median"
branch = "main"
"""


def latency(day):
    return (0.010 if day < 20 else 0.011) * (1.003 if day % 2 else 0.997)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Forty days of two layers, with a step, and the store that they were added to."""
    folder = tmp_path_factory.mktemp("stored")
    made = [
        runs.run(day, latency=latency(day), layers={"body.0": 100, "body.1": 100 + 9 * (day > 19)})
        for day in range(40)
    ]
    (folder / "runs.jsonl").write_bytes(b"".join(json_lines(made)))
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main(["history", "add", "runs.jsonl", "--store", "h.db"])
    said = f"Added 40 runs of runs.jsonl ({folder}/h.db)\n"
    assert (code, out.getvalue(), err.getvalue()) == (0, "", said)
    return folder


@pytest.fixture
def history(stored, tmp_path, monkeypatch, capsys):
    """The project's own store, with what `stored` holds."""
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHGAUGE_STORE", str(tmp_path / "h.db"))

    def act(*arguments):
        code = main(["history", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return act


def test_a_run_is_added_once(history, tmp_path):
    runs.profile(99).save(tmp_path / "profile.json")
    said = ["--label", "gpu=no", "--label", "a=b=c", "--commit", "abc", "--branch", "dev"]
    code, _, err = history("add", "profile.json", *said)
    assert code == 0
    assert err.startswith("Added profile.json as run ")
    _, out, _ = history("list", "--branch", "dev", "--json")
    (run,) = json.loads(out)
    assert (run["commit"], run["labels"]) == ("abc", {"gpu": "no", "a": "b=c"})
    assert run["uuid"].startswith(err.split()[4])
    _, _, err = history("add", "profile.json", "runs.jsonl")
    assert err.splitlines()[0].startswith("There already: profile.json as run")
    assert err.splitlines()[1].startswith("Added 0 runs of runs.jsonl, 40 were there already")


def test_list(history):
    code, out, _ = history("list", "--limit", "2")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    first, second = out.splitlines()[1:3]
    assert "c38" in first
    assert "c39" in second
    assert out.endswith("2 of 40 runs; --limit N shows more.\n")
    assert len(history("list", "--since", "2026-02-05", "--limit", "99")[1].splitlines()) == 6
    assert history("list", "--target", "x")[1] == "No such run.\n"
    code, _, err = history("list", "--since", "yesterday")
    assert code == 2
    assert "[option-invalid]" in err


def test_show_is_what_the_console_shows(history, tmp_path):
    made = runs.profile(39, latency(39), {"body.0": 100, "body.1": 109})
    code, out, _ = history("show", "latest")
    assert code == 0
    head, _, rest = out.partition("\n")
    assert "c39" in head
    assert rest == f"{made}\n"
    _, out, _ = history("show", "latest", "--json")
    assert out == codec.encode(made).decode()
    code, _, err = history("show", "zzz")
    assert code == 2
    assert "[run-unknown]" in err


def test_trend_says_where_it_changed(history):
    code, out, _ = history("trend", "--metric", "latency_median", "--points", "1")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    lines = out.splitlines()
    assert lines[0] == "net.py:make"
    assert "branch main" in lines[1]
    assert "A CPU" in lines[1]  # whose times they are
    assert "▁" in lines[3]
    assert "█" in lines[3]
    assert "▲ +10.0 %" in out
    assert "after c19 and up to c20" in out
    assert "11.03 ms  10.92 ms … 11.14 ms" in out
    assert "paired run" in out


def test_trend_of_layers(history):
    _, out, _ = history("trend", "--layer", "body.*")
    assert out.index("body.1 host_time") < out.index("body.0 host_time")  # what moved goes first
    assert "body.1 host_time changed" in out
    assert "body.0 host_time changed" not in out


def test_trend_as_data(history):
    _, out, _ = history("trend", "net.py:make", "--metric", "latency_median", "--json")
    found = codec.decode(out.encode())
    assert isinstance(found, Trend)
    (series,) = found.series
    assert len(series.points) == 40
    assert series.changes[0].until == "c20"
    assert history("trend", "other")[1] == "No run of the history has such a figure.\n"


def test_alerts_decide_the_exit_code(history, tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text(ALERTS)
    code, out, _ = history("trend", "--alerts", "alerts.toml")
    assert code == 3
    first, second = out.splitlines()
    assert first.startswith("ALERT fast: latency_median: 11.03 ms is above 10.50 ms")
    assert second.startswith("ALERT change 1: latency_median: changed by +10.0 % after c19 … c20")
    code, out, _ = history("trend", "--alerts", "alerts.toml", "--json")
    assert code == 3
    assert len(json.loads(out)["alerts"]) == 2
    path.write_text(ALERTS.replace("10.5ms", "11.5ms").replace('branch = "main"', 'by = "50%"'))
    assert history("trend", "--alerts", "alerts.toml")[:2] == (0, "No alert (2 rules, 1 series).\n")
    path.write_text(ALERTS.replace("main", "other").replace("10.5ms", "11.5ms"))
    code, _, err = history("trend", "--alerts", "alerts.toml")
    assert code == 4  # what is unknown never passes
    assert "rule 'change 1' cannot be checked" in err


def test_a_webhook_that_fails_changes_nothing(history, tmp_path):
    hook = '[webhook]\nurl = "http://127.0.0.1:1/53CR3T"\n'
    (tmp_path / "alerts.toml").write_text(ALERTS + hook)
    code, out, err = history("trend", "--alerts", "alerts.toml")
    assert code == 3
    assert "warning: the webhook could not be reached" in err
    assert "53CR3T" not in out + err


def test_export_and_add_again(history, tmp_path):
    code, out, _ = history("export", "--since", "2026-02-01")
    assert code == 0
    assert len(out.splitlines()) == 9
    history("export", "--output", "all.jsonl")
    history("add", "all.jsonl", "--store", "other.db")
    listed = history("list", "--json")[1]
    for flag in ("--store", "--history"):
        assert history("list", "--json", flag, "other.db")[1] == listed
    _, out, _ = history("export", "--format", "csv")
    header, *lines = out.splitlines()
    assert len(lines) == 40
    assert header.startswith("uuid,created,commit")


def test_prune(history):
    code, out, _ = history("prune", "--keep-last", "38", "--dry-run")
    assert code == 0
    assert "c0" in out
    assert out.endswith("2 runs would be removed.\n")
    assert len(json.loads(history("list", "--json", "--limit", "99")[1])) == 40
    assert history("prune", "--keep-last", "38")[2].startswith("Removed 2 runs")
    history("prune", "--older-than", "0d")
    (left,) = json.loads(history("list", "--json")[1])
    assert left["commit"] == "c39"  # the newest stays
    code, _, err = history("prune")
    assert code == 2
    assert "[option-missing]" in err


def test_prune_removes_windows_where_it_is_asked_to(history, tmp_path):
    now = time.time()
    windows = [
        Window(series="latency", labels={"monitor": "m"}, begin=end - 60, end=end, count=1)
        for end in (now - 100 * 86400, now - 60)
    ]
    with Store.open(str(tmp_path / "h.db")) as store:
        add_windows(store, windows, "host:1")
    code, out, _ = history("prune", "--windows", "90d", "--dry-run")
    assert (code, out) == (0, "1 windows would be removed.\n")
    assert history("prune", "--windows", "90d")[2].startswith("Removed 1 windows")
    with Store.open(str(tmp_path / "h.db"), create=False) as store:
        (left,) = read_windows(store)
    assert left.end == now - 60
    assert len(json.loads(history("list", "--json", "--limit", "99")[1])) == 40


def test_labels_are_changed(history):
    def labelled(*labels):
        (run,) = json.loads(history("list", "--json", *labels)[1])
        return run["commit"], run["labels"]

    code, out, _ = history("label", "latest", "machine=mine", "a=1")
    assert code == 0
    assert out.endswith(" · a=1 machine=mine\n")
    history("label", "latest", "a=2", "b=x=y", "--remove", "machine")
    assert labelled("--label", "a=2") == ("c39", {"a": "2", "b": "x=y"})
    code, _, err = history("label", "latest", "c=3", "--remove", "machine", "--remove", "a")
    assert code == 2
    assert "[label-unknown]" in err
    assert "Its labels are a, b." in err
    assert labelled("--label", "a=2") == ("c39", {"a": "2", "b": "x=y"})
    code, _, err = history("label", "latest")
    assert code == 2
    assert "[option-missing]" in err


def test_reading_makes_no_store(history, tmp_path):
    code, _, err = history("list", "--store", "none.db")
    assert code == 2
    assert "[store-missing]" in err
    assert not (tmp_path / "none.db").exists()


def test_what_the_store_refused_is_added_by_the_command_that_is_named(history, tmp_path):
    made = runs.run(200)
    with Store.open(str(tmp_path / "h.db")) as store:
        refused = StoreError("It is full.", id="store-full", remedy="Free space.")
        error = save_to_file(made, refused, store.file)
    command = error.remedy.partition("torchgauge history ")[2].replace("'", "")
    assert history(*command.split())[2].startswith("Added")
    assert "c200" in history("list", "--limit", "1")[1]
