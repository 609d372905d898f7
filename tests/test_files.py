import os
import socket
import tempfile
from pathlib import Path

import pytest

from torchgauge.errors import InputError
from torchgauge.files import check_readable, check_writable, write_atomically


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


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
@pytest.mark.parametrize(
    "name", ["/proc/self/mem", "/proc/self/environ", "/proc/kmsg", "/dev/zero"]
)
def test_what_the_kernel_makes_up_is_not_read(name):
    with pytest.raises(InputError) as caught:
        check_readable(Path(name))
    assert caught.value.id == "file-not-regular"


def test_pipes_and_sockets_are_not_read_but_a_pipe_on_request(tmp_path):
    pipe, plug = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(plug))
        for path in (pipe, plug):
            with pytest.raises(InputError) as caught:
                check_readable(path)
            assert caught.value.id == "file-not-regular"
            assert path.name in caught.value.message
    check_readable(pipe, pipe=True)


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "/".join(["a" * 200] * 30)])
def test_a_name_that_no_file_can_have_is_missing(tmp_path, name):
    with pytest.raises(InputError) as caught:
        check_readable(tmp_path / name)
    assert caught.value.id == "file-missing"
    assert caught.value.cause


def test_files_folders_empty_files_and_nothing_pass(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "empty", "link", "", "absent", "file/inside"):
        check_readable(tmp_path / name)
