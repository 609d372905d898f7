"""Another program's database is refused before a byte of it, or beside it, changes."""

import os
import sqlite3

import pytest
from tests.support import history_runs as runs

from torchgauge.cli.main import main
from torchgauge.errors import TorchgaugeError
from torchgauge.history.retention import location
from torchgauge.history.store import Store

TABLE = "CREATE TABLE mine (a TEXT)"
FOREIGN = {
    "a table": [TABLE, "INSERT INTO mine VALUES ('x')"],
    "a table named runs": ["CREATE TABLE runs (mine TEXT)"],
    "a view alone": ["CREATE VIEW mine AS SELECT 1"],
    "a mark and no table": ["PRAGMA application_id = 252006674"],
    "a version and no table": ["PRAGMA user_version = 7"],
    "with a log": ["PRAGMA journal_mode = WAL", TABLE],
    "another page size": ["PRAGMA page_size = 512", TABLE],
}
HISTORY = (
    ["list"], ["show", "latest"], ["trend"], ["export"], ["prune", "--keep-last", "1"],
    ["prune", "--keep-last", "1", "--dry-run"],
)  # fmt: skip


def content(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def made(file, statements):
    connection = sqlite3.connect(file, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return file


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
def test_no_verb_touches_another_programs_database(tmp_path, capsys, statements):
    folder = tmp_path / "theirs"
    folder.mkdir()
    file = made(folder / "other.db", statements)
    before = content(folder)
    for arguments in HISTORY:
        assert main(["history", *arguments, "--store", str(file)]) == 2
        said = capsys.readouterr()
        assert "[store-damaged]" in said.err
        assert not said.out
        assert content(folder) == before
    for create in (True, False):
        with pytest.raises(TorchgaugeError) as error:
            Store.open(str(file), create=create)
        assert error.value.id == "store-damaged"
        assert content(folder) == before


def test_a_database_that_somebody_writes_keeps_what_is_in_its_log(tmp_path):
    """Its tables are in the log alone: a look without it would find an empty file."""
    file = tmp_path / "other.db"
    with sqlite3.connect(file, isolation_level=None) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute(TABLE)
        before = {name: data for name, (data, _) in content(tmp_path).items() if "shm" not in name}
        for create in (True, False):
            with pytest.raises(TorchgaugeError) as error:
                Store.open(str(file), create=create)
            assert error.value.id == "store-damaged"
        after = {name: data for name, (data, _) in content(tmp_path).items() if "shm" not in name}
        assert after == before
        assert writer.execute("SELECT * FROM mine").fetchall() == []
    writer.close()


@pytest.fixture
def history(tmp_path):
    folder = tmp_path / "ours"
    with Store.open(str(folder / "history.db")) as store:
        store.add(runs.run(0))
        store.add(runs.run(1))
    return folder / "history.db"


def test_reading_changes_no_byte_of_ours_and_leaves_nothing_beside_it(history, capsys):
    before = content(history.parent)
    for arguments in (*HISTORY[:4], HISTORY[-1]):
        assert main(["history", *arguments, "--store", str(history)]) == 0
        assert content(history.parent) == before
    capsys.readouterr()


def test_reading_leaves_the_log_of_a_writer_that_was_killed(history):
    child = os.fork()
    if child == 0:
        store = Store.open(str(history))
        store.add(runs.run(2))
        os._exit(0)
    os.waitpid(child, 0)
    kept = {name: data for name, (data, _) in content(history.parent).items() if "shm" not in name}
    assert kept["history.db-wal"]
    with Store.open(str(history), create=False) as store:
        assert len(store.runs()) == 3
    now = {name: data for name, (data, _) in content(history.parent).items() if "shm" not in name}
    assert now == kept


def test_an_older_history_is_read_from_a_copy_and_brought_up_by_the_first_write(
    history, monkeypatch
):
    with Store.open(str(history)) as store:
        held = store.runs()
    runs.second_version(monkeypatch)
    before = content(history.parent)
    with Store.open(str(history), create=False) as store:
        assert store.runs() == held
        assert content(history.parent) == before
        new = runs.run(5)
        assert store.add(new) == (new.run.uuid, True)
        assert len(store.runs()) == 3
    with sqlite3.connect(history) as connection:
        assert connection.execute("SELECT version FROM torchgauge_store").fetchall() == [(2,)]
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE torchgauge_store SET version = 'abc'",
        "UPDATE torchgauge_store SET version = x'00'",
        "UPDATE torchgauge_store SET version = -1",
        "UPDATE torchgauge_store SET version = 0",
        "UPDATE torchgauge_store SET version = 1.5",
        "DELETE FROM torchgauge_store",
        "INSERT INTO torchgauge_store VALUES (3)",
        "DROP TABLE metrics",
        "ALTER TABLE runs DROP COLUMN branch",
    ],
)
def test_a_store_that_contradicts_itself_is_damaged(history, statement):
    made(history, [statement])
    before = content(history.parent)
    for create in (True, False):
        with pytest.raises(TorchgaugeError) as error:
            Store.open(str(history), create=create)
        assert error.value.id == "store-damaged"
        assert "report" not in error.value.remedy
    assert content(history.parent) == before


@pytest.mark.parametrize("value", ["7", "'text'"])
def test_a_record_of_another_type_is_damage(history, value):
    made(history, [f"UPDATE runs SET profile = {value}"])
    with Store.open(str(history), create=False) as store, pytest.raises(TorchgaugeError) as error:
        list(store.entries())
    assert error.value.id == "store-damaged"


def test_a_view_in_place_of_the_runs_is_not_read(history):
    endless = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT * FROM n"
    made(history, ["DROP TABLE runs", f"CREATE VIEW runs AS {endless}"])
    with pytest.raises(TorchgaugeError) as error:
        Store.open(str(history), create=False)
    assert error.value.id == "store-damaged"


def test_an_empty_file_is_no_history_and_may_become_one(tmp_path):
    file = tmp_path / "empty.db"
    file.touch()
    with pytest.raises(TorchgaugeError) as error:
        Store.open(str(file), create=False)
    assert error.value.id == "store-missing"
    assert file.read_bytes() == b""
    with Store.open(str(file)) as store:
        assert store.runs() == []


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("/", "store-url"),
        ("sqlite:////", "store-url"),
        ("~nobody-of-that-name/h.db", "store-url"),
        ("folder", "store-url"),
        ("pipe", "store-url"),
        ("/dev/null", "store-url"),
        ("x" * 300, "store-unreachable"),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_a_place_that_is_no_file_is_named_and_nothing_is_made(
    tmp_path, monkeypatch, name, id, create
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TorchgaugeError) as error:
        Store.open(name, create=create)
    assert error.value.id == id
    assert error.value.cause
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "pipe"}


def test_a_link_to_a_history_is_the_history(history, tmp_path):
    (tmp_path / "link.db").symlink_to(history)
    with Store.open(str(tmp_path / "link.db"), create=False) as store:
        assert len(store.runs()) == 2
        store.add(runs.run(7))
    assert {path.name for path in tmp_path.iterdir()} == {"ours", "link.db"}


@pytest.mark.parametrize("home", ["", "somewhere"])
def test_without_a_home_no_folder_is_made_up(tmp_path, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("TORCHGAUGE_STORE", raising=False)
    with pytest.raises(TorchgaugeError) as error:
        location(start=tmp_path)
    assert error.value.id == "store-url"


def test_a_relative_data_home_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "data")
    assert location(start=tmp_path) == str(tmp_path / ".local/share/torchgauge/history.db")
