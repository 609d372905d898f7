import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest

from torchgauge.errors import InputError
from torchgauge.files import (
    append,
    check_readable,
    check_replaceable,
    check_writable,
    write_atomically,
)


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


FULL = """
import resource, signal, sys
from pathlib import Path
from torchgauge.errors import InputError
from torchgauge.files import check_writable
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    check_writable(Path(sys.argv[1]))
except InputError as error:
    print(error.id, error.cause, sep="\\n")
"""


def test_a_folder_with_no_room_for_a_record_is_found_before_measuring(tmp_path):
    """A limit on the size of files stands for the disk's end."""
    check_writable(tmp_path / "results")
    assert list((tmp_path / "results").iterdir()) == []
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "output-unwritable\nFile too large\n"
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def caught(path, write=write_atomically):
    """Return the cause that nothing was written for."""
    with pytest.raises(InputError) as error:
        write(path, b"new") if write is write_atomically else write(path)
    assert error.value.id == "output-unwritable"
    return error.value.cause


def facts(path):
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


def test_what_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    path.chmod(0o604)
    before = facts(path)
    write_atomically(path, b"new")
    assert facts(path) == before
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_replaces_keeps_its_owner(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    os.chown(path, 1234, 5678)
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert facts(path) == (0o640, 1234, 5678)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize(
    ("owner", "mode", "cause"),
    [
        (4321, 0o666, "It belongs to another user, and a new one would be yours"),
        (4321, 0o644, "It is write-protected"),
        (1234, 0o444, "It is write-protected"),
    ],
)
def test_a_file_that_cannot_stay_as_it_is_is_left_alone(tmp_path, owner, mode, cause):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    path = folder / "out.json"
    try:
        path.write_bytes(b"old")
        path.chmod(mode)
        os.chown(path, owner, owner)
        os.chown(folder, 1234, 1234)
        os.seteuid(1234)
        told = [caught(path), caught(path, check_replaceable)]
    finally:
        os.seteuid(0)
        kept = path.read_bytes(), [entry.name for entry in folder.iterdir()]
        shutil.rmtree(folder)
    assert told == [cause, cause]
    assert kept == (b"old", ["out.json"])


def test_links_are_followed_and_stay(tmp_path):
    (tmp_path / "real").mkdir()
    target, first, second = tmp_path / "real" / "out.json", tmp_path / "first", tmp_path / "second"
    target.write_bytes(b"old")
    first.symlink_to("real/out.json")
    second.symlink_to(first)
    assert write_atomically(second, b"new") == second
    assert target.read_bytes() == b"new"
    assert first.is_symlink()
    assert second.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"real", "first", "second"}
    assert [path.name for path in target.parent.iterdir()] == ["out.json"]


def test_a_link_to_nothing_makes_its_target(tmp_path):
    (tmp_path / "link").symlink_to("new/out.json")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "new" / "out.json").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_links_in_a_ring_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "symbolic links" in caught(tmp_path / "a")


def device(path, real, kind=stat.S_IFCHR):
    """Make another node of a device in a temporary folder, and return its path."""
    try:
        os.mknod(path, kind | 0o600, Path(real).stat().st_rdev if real else os.makedev(7, 255))
        if real:
            path.open("wb").close()
    except PermissionError:
        pytest.skip("device nodes cannot be made and used here")
    return path


def test_a_device_takes_what_is_written_and_stays_one(tmp_path):
    null = device(tmp_path / "null", "/dev/null")
    (tmp_path / "link").symlink_to("null")
    for path in (null, tmp_path / "link"):
        check_replaceable(path)
        assert write_atomically(path, b"page") == path
    assert stat.S_ISCHR(null.lstat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"null", "link"}


def test_a_device_that_is_full_says_so(tmp_path):
    full = device(tmp_path / "full", "/dev/full")
    assert caught(full) == "No space left on device"
    assert stat.S_ISCHR(full.lstat().st_mode)


def test_disks_and_sockets_are_refused(tmp_path):
    plug = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(plug))
        assert caught(plug) == "It is a disk or a socket"
        assert caught(plug, check_replaceable) == "It is a disk or a socket"
    disk = device(tmp_path / "disk", None, stat.S_IFBLK)
    assert caught(disk) == "It is a disk or a socket"


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert caught(pipe) == "The pipe has no reader"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.set_blocking(reader, True)
        assert write_atomically(pipe, [b"a page", b" of parts"]) == pipe
        assert os.read(reader, 100) == b"a page of parts"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="there is no /dev/stdout")
def test_a_descriptor_is_written_to_where_it_stands(tmp_path):
    """`--html /dev/stdout >out`: replaced, the file would lose what else is printed to it."""
    code = """if True:
        import os, sys
        from pathlib import Path
        from torchgauge.cli.output import prints_to_stderr
        from torchgauge.files import write_atomically
        os.write(1, b"before ")
        write_atomically(Path("/dev/stdout"), b"page ")
        with prints_to_stderr():
            print("the user's")
            write_atomically(Path("/dev/stdout"), b"trace ")
            write_atomically(Path("/dev/fd/2"), b"error ")
        os.write(1, b"after")
    """
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=file, stderr=subprocess.PIPE, check=True
        )
    assert out.read_bytes() == b"before page trace after"
    assert done.stderr == b"the user's\nerror "
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_descriptor_that_is_closed_is_refused():
    assert caught(Path("/proc/self/fd/987")) == "Bad file descriptor"


def test_the_longest_name_is_written_and_a_longer_one_refused(tmp_path):
    path = tmp_path / ("é" * 127)
    left = tmp_path / f".{zlib.crc32(os.fsencode(path.name)):08x}.1.part"
    left.write_bytes(b"")
    os.utime(left, (0, 0))
    write_atomically(path, b"new")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert caught(tmp_path / ("é" * 128)) == "File name too long"
    assert caught(tmp_path / "a\0b") == "Its name holds a NUL"


def test_the_process_s_mask_of_modes_is_not_touched(tmp_path, monkeypatch):
    def touched(_):
        raise AssertionError

    monkeypatch.setattr(os, "umask", touched)
    write_atomically(tmp_path / "out.json", b"")


def test_a_text_is_added_to_a_file_and_never_waits_for_a_reader(tmp_path):
    append(tmp_path / "summary", "one\n")
    append(tmp_path / "summary", "é\n")
    assert (tmp_path / "summary").read_text(encoding="utf-8") == "one\né\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        append(tmp_path / "pipe", "one")


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
