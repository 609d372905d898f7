import os

import pytest

from torchgauge.errors import InputError
from torchgauge.files import write_atomically


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
