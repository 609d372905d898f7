"""What is exported is imported as it was, from one database to the other."""

import json

import pytest
from tests.support import exported_records
from tests.support import history_runs as runs

from torchgauge.errors import RecordError, TorchgaugeError
from torchgauge.history.content import entry
from torchgauge.history.imports import entries, json_lines, rows
from torchgauge.history.series import read_yardsticks
from torchgauge.history.store import Store
from torchgauge.records import codec
from torchgauge.records.run import Facts

SAID = Facts(commit="c", branch="b", labels={"k": "v"})


def line(made):
    return b"".join(json_lines([made]))


def test_all_of_a_history_goes_to_another(location, tmp_path):
    made = [runs.run(day, layers={"a": 5}, labels={"l": str(day)}) for day in range(3)]
    made.append(entry(exported_records.profile(), SAID))
    made.append(runs.run(9, work={"python": 0.001}))
    file = tmp_path / "runs.jsonl"
    with Store.open(location) as store:
        for one in made:
            store.add(one)
        file.write_bytes(b"".join(json_lines(store.entries())))
        held = store.runs()
    with Store.open(str(tmp_path / "other.db")) as other:
        answers = [other.add(one) for one in entries(file, SAID)]
        assert [new for _, new in answers] == [True] * 5
        assert other.runs() == held
        assert other.read(read_yardsticks) == {made[-1].run.uuid: {"python": 0.001}}
        assert [other.add(one)[1] for one in entries(file, SAID)] == [False] * 5


def test_a_saved_profile_gets_what_is_said_of_it(tmp_path):
    path = runs.profile().save(tmp_path / "profile.json")
    (found,) = entries(path, SAID)
    assert (found.run.commit, found.run.branch, found.run.labels) == ("c", "b", {"k": "v"})
    assert found.run.digest == runs.run().run.digest


def test_a_csv_has_facts_and_figures():
    (row,) = rows([runs.run(latency=0.012, labels={"a": "1", "b": "2"})])
    assert row["commit"] == "c0"
    assert row["labels"] == "a=1 b=2"
    assert row["latency_median_ms"] == pytest.approx(12)


def test_an_older_line_without_newer_facts_is_read(tmp_path):
    content = json.loads(line(runs.run()))
    for name in ("dirty", "message", "labels", "gpu", "torch", "workload"):
        del content["run"][name]
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps(content) + "\n\n")
    (found,) = entries(file, SAID)
    assert found.run.uuid == content["run"]["uuid"]
    assert found.run.commit == "c0"
    assert found.run.labels == {}
    assert found.run.workload == runs.run().run.workload


def test_a_line_that_was_edited_is_another_record(tmp_path):
    made = runs.run()
    content = json.loads(line(made))
    content["profile"]["latency"]["median"] = 1.0
    file = tmp_path / "edited.jsonl"
    file.write_text(json.dumps(content))
    (found,) = entries(file, SAID)
    assert found.run.digest != made.run.digest


@pytest.mark.parametrize(
    ("content", "id"),
    [
        (b"", "record-unreadable"),
        (b"{", "record-unreadable"),
        (b"{}\n", "record-foreign"),
        (b"[1]\n", "record-foreign"),
        (b"\xff\xfe\n", "record-unreadable"),
        (line(runs.run()) + b"cut off", "history-line"),
        (line(runs.run()) + line(runs.run())[:-40], "history-line"),
        (
            line(runs.run()).replace(b"torchgauge.profile/1", b"torchgauge.profile/9"),
            "record-newer",
        ),
        (line(runs.run()).replace(b'"uuid":', b'"uid":'), "history-line"),
        (line(runs.run()).replace(b'"median":0.01', b'"median":"x"'), "record-invalid"),
        (codec.encode(exported_records.count()), "history-kind"),
        (codec.encode(exported_records.loop()), "history-kind"),
        (b"SQLite format 3\0 and nothing more", "store-damaged"),
    ],
)
def test_what_holds_no_runs_is_named(content, id, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(TorchgaugeError) as error:
        list(entries(file, SAID))
    assert error.value.id == id


def test_a_line_is_named_by_its_number(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(line(runs.run()) + b"\n\n{}\n")
    with pytest.raises(RecordError, match="line 4"):
        list(entries(file, SAID))
