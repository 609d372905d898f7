"""Temporary folders: gone with their process, however it ends, and nobody else's business."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchgauge import temporary
from torchgauge.temporary import TemporaryFolder, remove_abandoned, temporary_folder

posix = pytest.mark.skipif(temporary.fcntl is None, reason="files are locked on POSIX alone")
HOLDING = """
import sys, time
from torchgauge.temporary import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "model").mkdir()
(folder.path / "model" / "weights").write_bytes(b"secret")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return where temporary folders are made now; what is abandoned there was not looked for."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remove_abandoned.cache_clear()
    return tmp_path


def holding(place):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDING], env=os.environ | {"TMPDIR": str(place)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return child, Path(child.stdout.readline().strip())


def ended(child):
    child.kill()
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def test_a_folder_is_for_this_user_alone_and_gone_after_the_block(place):
    with temporary_folder() as folder:
        assert folder.parent == place
        assert folder.name.startswith(f"torchgauge-{os.getpid()}-")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
        (folder / "below").mkdir()
    assert list(place.iterdir()) == []


@posix
def test_the_next_run_removes_what_a_killed_one_left_and_nothing_of_a_running_one(place):
    (killed, left), (running, used) = holding(place), holding(place)
    ended(killed)
    assert (left / "model" / "weights").exists()
    with temporary_folder():
        assert not left.exists()
        assert (used / "model" / "weights").read_bytes() == b"secret"
    running.communicate("")
    assert running.returncode == 0
    assert list(place.iterdir()) == []  # at its end it removed its own


@posix
def test_what_a_kill_left_of_a_removal_is_found_again(place):
    child, left = holding(place)
    ended(child)
    for path in (left / "model" / "weights", left / "model"):
        path.unlink() if path.is_file() else path.rmdir()
    with temporary_folder():
        assert not left.exists()


@posix
def test_folders_that_are_not_known_to_be_abandoned_stay(place, monkeypatch):
    child, other_machine = holding(place)
    ended(child)
    (other_machine / temporary.LOCK).write_text("another boot\nanother host")
    child, other_user = holding(place)
    ended(child)
    unlocked = place / "torchgauge-1-x"
    unlocked.mkdir()
    (place / "elsewhere").mkdir()
    (place / "torchgauge-link").symlink_to(place / "elsewhere")
    (place / "torchgauge-file").touch()
    mine = os.getuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: mine + 1)
        with temporary_folder():
            pass
    names = {path.name for path in place.iterdir()}
    assert {other_user.name, other_machine.name} < names
    remove_abandoned.cache_clear()
    with temporary_folder():
        pass
    assert {path.name for path in place.iterdir()} == {
        *("torchgauge-1-x", "torchgauge-link", "torchgauge-file", "elsewhere"),
        other_machine.name,
    }


@posix
def test_another_host_name_after_a_new_start_is_another_machine_and_the_same_one_is_not(place):
    child, left = holding(place)
    ended(child)
    host = (left / temporary.LOCK).read_text().split("\n")[1]
    (left / temporary.LOCK).write_text(f"an earlier boot\n{host}")
    with temporary_folder():
        assert not left.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_removes_nothing(place):
    folder = TemporaryFolder()
    child = os.fork()
    if child == 0:
        folder.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert folder.path.exists()
    folder.remove()
    assert not folder.path.exists()


def test_without_locks_nothing_is_taken_for_abandoned(place, monkeypatch):
    monkeypatch.setattr(temporary, "fcntl", None)
    (place / "torchgauge-1-x").mkdir()
    with temporary_folder() as folder:
        assert list(folder.iterdir()) == []
    assert [path.name for path in place.iterdir()] == ["torchgauge-1-x"]


def test_nothing_else_makes_temporary_folders():
    package = Path(temporary.__file__).parent
    makers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(name in path.read_text() for name in ("mkdtemp", "TemporaryDirectory"))
    }
    assert makers == {"temporary.py"}
