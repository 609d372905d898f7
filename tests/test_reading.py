"""Small files that would fill memory or take for ever are refused, with how to raise the bound."""

import gzip
import io
import os
import pickle
import sqlite3
import zipfile
import zlib

import pytest
import torch
from tests.support import history_runs as runs

import torchgauge as tg
from torchgauge.errors import InputError, StoreError, TorchgaugeError
from torchgauge.history import rules
from torchgauge.history.imports import entries
from torchgauge.history.store import Store
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.reading import RECORD, Bound, inflated, read_bytes
from torchgauge.records import codec
from torchgauge.records.run import Facts
from torchgauge.targets.loaders.load import load_weights

LIMIT = "TORCHGAUGE_READ_LIMIT"


def test_a_bound_is_a_multiple_between_two_limits(monkeypatch):
    bound = Bound(minimum=100, times=10, maximum=1000)
    assert [bound.limit_for(size) for size in (0, 9, 10, 11, 99, 100, 5000)] == [
        100, 100, 100, 110, 990, 1000, 1000,
    ]  # fmt: skip
    monkeypatch.setenv(LIMIT, "2e9")
    assert bound.limit_for(5) == 2_000_000_000


@pytest.mark.parametrize("text", ["much", "-1", "0", "nan", "1e999"])
def test_a_limit_that_is_no_number_of_bytes_is_said(text, monkeypatch):
    monkeypatch.setenv(LIMIT, text)
    with pytest.raises(InputError) as caught:
        RECORD.limit_for(1)
    assert caught.value.id == "read-limit-invalid"


def test_a_file_at_its_bound_is_read_and_one_byte_more_is_not(tmp_path):
    path = tmp_path / "file"
    bound = Bound(minimum=10, times=0, maximum=10)
    path.write_bytes(b"x" * 10)
    assert read_bytes(path, bound) == b"x" * 10
    path.write_bytes(b"x" * 11)
    with pytest.raises(InputError) as caught:
        read_bytes(path, bound)
    assert caught.value.id == "file-too-large"
    assert "10 B" in caught.value.cause
    assert f"{LIMIT}=20" in caught.value.remedy


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_what_zlib_packed_comes_back_up_to_the_bound(size):
    data = bytes(size)
    assert inflated(zlib.compress(data), Bound(size, 0, size), "it") == data
    with pytest.raises(InputError) as caught:
        inflated(zlib.compress(data + b"x"), Bound(size, 0, size), "it")
    assert caught.value.id == "file-too-large"
    with pytest.raises(zlib.error):
        inflated(zlib.compress(data)[:-3], Bound(size, 0, size), "it")


@pytest.mark.thorough
def test_packed_spaces_are_no_trace(tmp_path, monkeypatch):
    path = tmp_path / "spaces.json.gz"
    path.write_bytes(gzip.compress(b" " * (64 << 20)))
    with pytest.raises(InputError) as caught:
        read_events(path)
    assert caught.value.id == "trace-empty"
    monkeypatch.setenv(LIMIT, str(32 << 20))
    with pytest.raises(InputError) as caught:
        read_events(path)
    assert caught.value.id == "trace-too-large"
    assert LIMIT in caught.value.remedy


@pytest.mark.thorough
@pytest.mark.parametrize("container", [b"\x8f", b"}", b"]"])
def test_a_pickle_of_empty_containers_is_refused(container, tmp_path):
    data = b"\x80\x04](" + container * (8 << 20) + b"e."
    path = tmp_path / "empty.pickle.gz"
    path.write_bytes(gzip.compress(data))
    assert path.stat().st_size < 20_000
    with pytest.raises(InputError) as caught:
        tg.read_snapshot(path)
    assert caught.value.id == "pickle-not-plain"
    assert "8,388,60" in caught.value.cause


def test_a_snapshot_that_inflates_is_refused(tmp_path):
    path = tmp_path / "long.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps("x" * (20 << 20))))
    with pytest.raises(InputError) as caught:
        tg.read_snapshot(path)
    assert caught.value.id == "trace-too-large"


def bomb_in_a_row(file, size):
    """Put what unpacks to so many bytes in place of a run's record."""
    with Store.open(str(file)) as store:
        store.add(runs.run())
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE runs SET profile = ?", (zlib.compress(b" " * size),))


def test_a_row_that_inflates_is_refused(tmp_path):
    file = tmp_path / "history.db"
    bomb_in_a_row(file, 40 << 20)
    with Store.open(str(file)) as store, pytest.raises(InputError) as caught:
        list(store.entries())
    assert caught.value.id == "file-too-large"
    assert "unpack to is more than" in caught.value.cause


def test_a_store_whose_runs_have_no_end_is_damaged(tmp_path):
    file = tmp_path / "history.db"
    with Store.open(str(file)) as store:
        store.add(runs.run())
    with sqlite3.connect(file) as connection:
        connection.executescript(
            "PRAGMA foreign_keys = OFF; ALTER TABLE runs RENAME TO old;"
            "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            ' SELECT i AS id, uuid, digest, created, recorded, "commit", branch, dirty, message,'
            ' machine, cpu, gpu, torch, target, model, device, "precision", workload, "schema",'
            " profile FROM n, old"
        )
    with pytest.raises(StoreError) as caught, Store.open(str(file)) as store:
        store.runs()
    assert caught.value.id == "store-damaged"


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_timeout_that_is_no_number_of_seconds_is_said(text, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STORE_TIMEOUT", text)
    with pytest.raises(InputError) as caught:
        Store.open(str(tmp_path / "history.db"))
    assert caught.value.id == "store-timeout-invalid"


def test_weights_that_inflate_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT, "1e5")
    whole_file, path = io.BytesIO(), tmp_path / "packed.pt"
    torch.save({"weight": torch.zeros(100_000)}, whole_file)
    with (
        zipfile.ZipFile(whole_file) as archive,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made,
    ):
        for member in archive.namelist():
            made.writestr(member, archive.read(member))
    assert path.stat().st_size < 10_000
    with pytest.raises(InputError) as caught:
        load_weights(torch.nn.Linear(4, 4), path)
    assert caught.value.id == "file-too-large"


def test_an_archive_of_many_members_with_a_name_twice_is_refused_at_once(tmp_path):
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(4000):
            archive.writestr(f"{number}.json", b"[]")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("0.json", b"[]")
    with pytest.raises(InputError) as caught:
        tg.read_trace(path)
    assert caught.value.id == "trace-archive"
    assert "the name 0.json" in caught.value.cause


ENDLESS = {
    "records": lambda path: tg.load(path),
    "baseline": lambda path: tg.gate(path, path),
    "alerts": rules.read,
    "history": lambda path: next(entries(path, Facts())),
    "snapshot": tg.read_snapshot,
    "trace": tg.read_trace,
    "weights": lambda path: load_weights(torch.nn.Linear(4, 4), path),
    "codec": codec.load,
}


@pytest.mark.parametrize("reader", ENDLESS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_has_no_end_is_never_opened(reader, kind, tmp_path):
    path = tmp_path / "pipe.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(TorchgaugeError) as caught:
        ENDLESS[reader](path)
    assert caught.value.id == "file-not-regular"


def test_lines_without_an_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT, "1e6")
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b" " * 3_000_000)
    with pytest.raises(InputError) as caught:
        next(entries(path, Facts()))
    assert caught.value.id == "file-too-large"
    assert "Line 1" in caught.value.cause


@pytest.mark.parametrize("text", [b"x = " + b"[" * 3000, b"x = " + b"9" * 5000, b"\xff"])
def test_alert_rules_that_no_parser_takes_are_none(text, tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        rules.read(path)
    assert caught.value.id == "alerts-invalid"
