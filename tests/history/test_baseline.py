"""`gate --baseline history`: the run that is taken, what is refused, and the exit codes."""

import json

import msgspec
import pytest
from tests.support import history_runs as runs

from torchgauge.api import gates
from torchgauge.cli.main import main
from torchgauge.errors import InputError
from torchgauge.history.baseline import HistoryBaseline
from torchgauge.history.store import Store


def kept(store, *entries):
    with Store.open(str(store)) as opened:
        for entry in entries:
            opened.add(entry)
    return [entry.run.uuid[:8] for entry in entries]


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))
    return tmp_path / "history.db"


@pytest.fixture
def gated(store, tmp_path, capsys):
    """Gate a saved run against a run of the history; return code, printed JSON and messages."""

    def run(record, baseline="history", *options):
        file = record.save(tmp_path / "current.json")
        words = ["gate", str(file), "--baseline", baseline, "--store", str(store), "--json"]
        code = main([*words, *options])
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err

    return run


def baseline_of(verdict):
    return verdict["comparison"]["baseline"]["label"].split()[1]


def with_parameters(record, parameters):
    size = msgspec.structs.replace(record.size, parameters=parameters)
    return msgspec.structs.replace(record, size=size)


def test_the_newest_earlier_run_of_the_same_work_is_the_baseline(store, gated):
    uuids = kept(
        store,
        runs.run(0),
        runs.run(1),
        runs.run(2, memory=32_000_000_000),  # another machine
        runs.run(3, torch="2.12.0"),
        runs.run(4, target="other.py:make"),
        runs.run(6),  # later than the current one
    )
    code, verdict, _ = gated(runs.profile(5), "history", "--metric", "params")
    assert (code, verdict["outcome"]) == (0, "pass")
    assert baseline_of(verdict) == uuids[1]


@pytest.mark.parametrize(
    ("choice", "index"),
    [
        ("history:accepted=yes", 0),
        ("history:accepted=yes,run=nightly", 1),
        ("history:branch=work", 2),
        ("history", 3),
    ],
)
def test_labels_and_branch_choose(store, gated, choice, index):
    uuids = kept(
        store,
        runs.run(1, labels={"accepted": "yes"}),
        runs.run(0, labels={"accepted": "yes", "run": "nightly"}),
        runs.run(2, branch="work"),
        runs.run(3, labels={"accepted": "no"}),
    )
    assert baseline_of(gated(runs.profile(9), choice)[1]) == uuids[index]


def test_a_uuid_chooses_any_run(store, gated):
    uuids = kept(store, runs.run(0), runs.run(1, target="renamed.py:make"), runs.run(2))
    code, verdict, _ = gated(runs.profile(9), f"history:{uuids[1]}", "--metric", "params")
    assert (code, baseline_of(verdict)) == (0, uuids[1])


def test_a_run_that_got_worse_fails(store, gated):
    kept(store, runs.run(0))
    code, verdict, _ = gated(with_parameters(runs.profile(1), 10**9), "history")
    assert (code, verdict["outcome"]) == (3, "fail")


def test_a_run_of_another_machine_alone_is_not_comparable(store, gated):
    (uuid,) = kept(store, runs.run(0, memory=32_000_000_000))
    code, verdict, _ = gated(runs.profile(1), "history", "--metric", "latency")
    assert (code, verdict["outcome"]) == (5, "not comparable")
    assert baseline_of(verdict) == uuid
    assert "machine" in json.dumps(verdict["comparison"]["differences"])


def test_a_run_is_no_baseline_of_itself(store, gated):
    kept(store, runs.run(1))
    code, printed, _ = gated(runs.profile(1))
    assert (code, printed["error"]["id"]) == (2, "baseline-missing")
    assert "no earlier run of net.py:make" in printed["error"]["message"]


@pytest.mark.parametrize(
    ("choice", "id"),
    [
        ("history:accepted=yes", "baseline-missing"),
        ("history:branch=nowhere", "baseline-missing"),
        ("history:ffffffff-none", "run-unknown"),
        ("history:accepted=", "option-invalid"),
        ("history:=yes", "option-invalid"),
    ],
)
def test_what_chooses_no_run_is_refused(store, gated, choice, id):
    kept(store, runs.run(0))
    code, printed, _ = gated(runs.profile(1), choice)
    assert (code, printed["error"]["id"]) == (2, id)


def test_a_history_that_is_not_there_is_named(gated):
    code, printed, _ = gated(runs.profile(1))
    assert (code, printed["error"]["id"]) == (2, "store-missing")


def test_another_target_is_refused_before_it_is_measured(store, monkeypatch, capsys):
    kept(store, runs.run(0))
    monkeypatch.setattr(gates, "_measured", lambda _: pytest.fail("it was measured"))
    words = ["gate", "mine.py:make", "--baseline", "history", "--store", str(store)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "[baseline-missing]" in said
    assert "net.py:make" in said


def test_a_measured_target_is_gated_against_the_history(store, monkeypatch, capsys):
    (uuid,) = kept(store, runs.run(0))
    monkeypatch.setattr(gates, "_measured", lambda _: runs.profile(1))
    words = ["gate", "net.py:make", "--baseline", "history", "--store", str(store), "--json"]
    assert main([*words, "--metric", "params"]) == 0
    assert baseline_of(json.loads(capsys.readouterr().out)) == uuid


def test_a_file_may_be_called_history(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    runs.profile(0).save(tmp_path / "current.json").rename("history")
    runs.profile(1).save(tmp_path / "current.json")
    assert main(["gate", "current.json", "--baseline", "./history", "--metric", "params"]) == 0


def test_the_choice_is_read_from_its_text():
    chosen = HistoryBaseline.parsed("branch=main,run=nightly", "h.db")
    assert chosen == HistoryBaseline("h.db", branch="main", labels=(("run", "nightly"),))
    assert HistoryBaseline.parsed("1a2b", "h.db") == HistoryBaseline("h.db", uuid="1a2b")
    with pytest.raises(InputError):
        HistoryBaseline.parsed("a=b,c", "h.db")
