"""A store that cannot be used says which and why, and the run is kept in a file."""

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.history.conftest import emptied
from tests.support import history_runs as runs

from torchgauge.errors import InputError, MissingExtraError, StoreError, TorchgaugeError
from torchgauge.history import imports as kept_runs
from torchgauge.history import store as stores
from torchgauge.history.imports import add_or_keep, entries, open_or_keep
from torchgauge.history.retention import patiently
from torchgauge.history.store import Store
from torchgauge.records.run import Facts

NOBODY = 65534


def kept_file(error):
    """Return the file that an error's remedy names."""
    return Path(shlex.split(error.remedy.partition("history add ")[2])[0])


def is_kept(made, error):
    (found,) = entries(kept_file(error), Facts())
    return found.run == made.run


@pytest.fixture
def nobody():
    """Files that root may write are no hindrance to root: be somebody else for a while."""
    folder = Path(tempfile.mkdtemp(prefix="history-"))
    folder.chmod(0o755)
    root = os.geteuid() == 0
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(folder)


def read_only(folder):
    for path in folder.iterdir():
        path.chmod(0o777 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)


def test_a_read_only_store_is_read_and_not_written(nobody, monkeypatch):
    first, second = runs.run(1), runs.run(2)
    with Store.open(str(nobody / "history.db")) as store:
        store.add(first)
    elsewhere = nobody / "here"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    read_only(nobody)
    with Store.open(str(nobody / "history.db"), create=False) as store:
        assert store.runs() == [first.run]
        with pytest.raises(StoreError, match="cannot be written") as error:
            add_or_keep(store, second)
    assert error.value.id == "store-read-only"
    assert is_kept(second, error.value)
    assert kept_file(error.value).parent == elsewhere


def test_no_store_can_be_made_in_a_read_only_folder(nobody, monkeypatch):
    made = runs.run()
    (nobody / "here").mkdir()
    monkeypatch.chdir(nobody / "here")
    read_only(nobody)
    with pytest.raises(StoreError) as error:
        open_or_keep(str(nobody / "deeper" / "history.db"), made)
    assert error.value.id == "store-read-only"
    assert is_kept(made, error.value)


FULL = """
import resource, sys
from torchgauge.errors import StoreError
from torchgauge.history.imports import add_or_keep
from torchgauge.history.store import Store
from tests.support import history_runs as runs
from tests.history.conftest import emptied
with Store.open(sys.argv[1]) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for day in range(1000):
        made = runs.run(day, layers={str(i): i for i in range(200)})
        try:
            add_or_keep(store, made)
        except StoreError as error:
            print(day, error.id, made.run.uuid, sep="\\n")
            print(error.remedy)
            break
"""


@pytest.mark.thorough
def test_a_full_disk_keeps_what_is_there_and_the_run(tmp_path):
    """A limit on the size of files stands for the disk's end."""
    location = str(tmp_path / "history.db")
    done = subprocess.run(
        [sys.executable, "-c", FULL, location], capture_output=True, text=True, check=True
    )
    saved, name, uuid, remedy = done.stdout.strip().split("\n", 3)
    assert name == "store-full"
    assert int(saved) > 2
    with Store.open(location) as store:
        assert [run.commit for run in store.runs()] == [f"c{day}" for day in range(int(saved))]
        (kept,) = entries(kept_file(StoreError("", id="", remedy=remedy)), Facts())
        assert kept.run.uuid == uuid
        assert store.add(kept) == (uuid, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the run goes that the disk has no room for
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        with Store.open(str(disk / "history.db")) as store:
            made, error = fill(store)
            assert error.id == "store-full"
            assert is_kept(made, error)
            saved = [run.commit for run in store.runs()]
        assert saved == [f"c{day}" for day in range(len(saved))]
        assert len(saved) > 2
    finally:
        subprocess.run(["umount", disk], check=True)


def fill(store):
    """Return the run that the store had no room for, and the error that said so."""
    for day in range(1000):
        made = runs.run(day, layers={str(i): i for i in range(200)})
        try:
            add_or_keep(store, made)
        except StoreError as error:
            return made, error
    raise AssertionError("it was never full")


def use(location):
    with Store.open(location) as store:
        list(store.entries())
        store.add(runs.run(9))


@pytest.mark.parametrize("damage", ["text", "header", "middle"])
def test_a_damaged_file_is_named(damage, tmp_path):
    file = tmp_path / "history.db"
    with Store.open(str(file)) as store:
        for day in range(3):
            store.add(runs.run(day, layers={str(i): i for i in range(200)}))
    content = file.read_bytes()
    broken = {
        "text": b"this is no database" * 100,
        "header": b"\xff" * 200 + content[200:],
        "middle": content[:4096] + b"\xff" * (len(content) - 4096),
    }[damage]
    file.write_bytes(broken)
    with pytest.raises(TorchgaugeError) as error:
        use(str(file))
    assert error.value.id == "store-damaged"
    assert str(file) in str(error.value)


def test_a_record_that_is_damaged_is_named(tmp_path):
    from sqlalchemy import text

    made = runs.run()
    with Store.open(str(tmp_path / "history.db")) as store:
        store.add(made)
        store.read(lambda c: c.execute(text("UPDATE runs SET profile = x'00'")))
        assert store.runs() == [made.run]
        with pytest.raises(TorchgaugeError, match=made.run.uuid) as error:
            store.profile(made.run.uuid)
    assert error.value.id == "store-damaged"


def test_a_busy_store_is_waited_for_and_then_said(tmp_path, monkeypatch):
    location, made = str(tmp_path / "history.db"), runs.run()
    monkeypatch.setattr(stores, "patiently", functools.partial(patiently, longest=0.2))
    with Store.open(location) as other, Store.open(location) as store:
        connection = other._engine.execution_options(writes=True).connect()
        connection.begin()
        with pytest.raises(StoreError, match="busy") as error:
            add_or_keep(store, made)
        connection.rollback()
        connection.close()
        assert error.value.id == "store-busy"
        assert is_kept(made, error.value)
        assert kept_file(error.value).parent == tmp_path
        assert store.add(made) == (made.run.uuid, True)


@pytest.mark.parametrize(
    ("location", "id"),
    [
        ("mysql://me:secret@here/db", "store-url"),
        ("sqlite://", "store-url"),
        ("://", "store-url"),
        ("postgresql://me:secret@127.0.0.1:1/db?password=secret", "store-unreachable"),
        ("postgresql://me:secret@/db?host=/nowhere&sslpassword=secret", "store-unreachable"),
    ],
)
def test_a_location_that_is_none_is_named_without_its_password(location, id):
    with pytest.raises(TorchgaugeError) as error:
        Store.open(location)
    assert error.value.id == id
    assert "secret" not in str(error.value)


def test_nothing_is_made_by_looking(tmp_path):
    with pytest.raises(StoreError) as error:
        Store.open(str(tmp_path / "history.db"), create=False)
    assert error.value.id == "store-missing"
    assert not list(tmp_path.iterdir())


def test_an_absent_psycopg_names_its_extra(monkeypatch):
    find = importlib.util.find_spec
    absent = "psycopg"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == absent else find(name, *a)
    )
    with pytest.raises(MissingExtraError, match=r"torchgauge-profiler\[postgres\]"):
        Store.open("postgresql://h/d")


@pytest.mark.postgres
def test_postgres_without_the_right_to_write(postgres, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the run goes that the server does not take
    url, made = emptied(postgres), runs.run()
    with Store.open(url) as store:
        store.add(runs.run(1))
    locked = f"{url}%20-cdefault_transaction_read_only%3Don"
    with Store.open(locked) as store:
        assert len(store.runs()) == 1
        with pytest.raises(StoreError, match="cannot be written") as error:
            add_or_keep(store, made)
    assert error.value.id == "store-read-only"
    assert is_kept(made, error.value)


def test_a_run_that_nothing_can_hold_is_an_error_and_no_traceback(tmp_path, monkeypatch):
    """No folder takes a file, and none is left for temporary ones."""

    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found")

    def full(*_):
        raise InputError("It is full.", id="output-unwritable")

    monkeypatch.setattr(kept_runs.tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(kept_runs, "write_atomically", full)
    refused = StoreError("It is full.", id="store-full", remedy="Free space.")
    error = kept_runs.save_to_file(runs.run(), refused, tmp_path / "history.db")
    assert error.id == "store-full"
    assert error.remedy == "Free space. The run could not be kept in a file either."
