import os
import tempfile

import pytest

from torchgauge.errors import InputError
from torchgauge.files import check_writable, write_atomically


def test_writes_into_a_new_folder_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "out.json"
    assert write_atomically(path, b"one") == path
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["out.json"]


def test_a_failing_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    write_atomically(path, b"old")

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError) as caught:
        write_atomically(path, b"new")
    assert caught.value.id == "output-unwritable"
    assert "No space left" in caught.value.cause
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_a_file_in_place_of_the_folder_is_an_error_of_ours(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="could not be written"):
        write_atomically(tmp_path / "taken" / "out.json", b"")


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_atomically(tmp_path / "out.json", b"")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_parts_that_killed_processes_left_are_removed_by_the_next_write(tmp_path):
    path = tmp_path / "out.json"
    left, at_work, other = (
        tmp_path / name for name in (".out.json.a1.part", ".out.json.b2.part", ".else.json.c3.part")
    )
    for part in (left, at_work, other):
        part.write_bytes(b"half")
    for part in (left, other):
        os.utime(part, (0, 0))
    write_atomically(path, b"whole")
    assert {p.name for p in tmp_path.iterdir()} == {path.name, at_work.name, other.name}


def test_a_folder_with_no_room_for_a_record_is_found_before_measuring(tmp_path, monkeypatch):
    check_writable(tmp_path / "results")
    assert list((tmp_path / "results").iterdir()) == []
    full = (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "part"))
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: full)
    with pytest.raises(InputError) as caught:
        check_writable(tmp_path)
    assert caught.value.id == "output-unwritable"
    assert "No space left" in caught.value.cause
