"""Temporary folders: made in one place, and removed by the next run where a process was killed.

A folder holds a file that its process keeps locked. The kernel ends the lock with the process,
however that ends: whoever gets it finds a folder that nobody uses. A process number alone would
not tell, since numbers are given anew, and containers that share a folder count for themselves.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from torchgauge.forks import Owner
from torchgauge.signals import HeldBack, restoring

try:
    import fcntl
except ImportError:  # no folder is known to be abandoned
    fcntl = None  # type: ignore[assignment]

PREFIX = "torchgauge-"
LOCK = ".owner"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class TemporaryFolder:
    """A new folder that this user alone may enter, at `path`, until `remove` or this process's end.

    A process that was forked from this one does not remove it. The first one of a process also
    removes those that killed processes left. Raises OSError where there is no room.
    """

    def __init__(self, prefix: str = PREFIX) -> None:
        with HeldBack():
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
            lock = _locked(self.path)
            self._finalizer = weakref.finalize(self, _ended, self.path, lock, Owner())
        remove_abandoned(self.path.parent)

    def remove(self) -> None:
        """Remove it with all that it holds."""
        self._finalizer()


@restoring
def temporary_folder(prefix: str = PREFIX) -> Iterator[Path]:
    """Yield the path of a `TemporaryFolder` that is gone after the block."""
    folder = TemporaryFolder(prefix)
    try:
        yield folder.path
    finally:
        folder.remove()


@functools.cache
def remove_abandoned(parent: Path) -> None:
    """Remove the folders of this user in `parent` whose processes have ended; once a process."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        _remove_unlocked(Path(entry.path))


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds the lock; None where files cannot be locked there."""
    if fcntl is None:
        return None
    unlocked = folder / f"{LOCK}.new"
    descriptor = -1
    try:
        descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, "\n".join(_machine()).encode())
        unlocked.rename(folder / LOCK)  # nobody ever sees it unlocked
    except OSError:
        if descriptor >= 0:
            os.close(descriptor)
        return None
    return descriptor


def _remove_unlocked(folder: Path) -> None:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A disk may be shared by machines, and its locks be known to each of them alone.
        owner_machine = os.read(descriptor, 1024).decode(errors="replace").split("\n")
        if any(
            owner_fact and owner_fact == own_fact
            for owner_fact, own_fact in zip(owner_machine, _machine(), strict=False)
        ):
            _remove(folder)
    finally:
        os.close(descriptor)


def _ended(folder: Path, lock: int | None, owner: Owner) -> None:
    if owner.in_fork:
        return
    with HeldBack():
        _remove(folder)
        if lock is not None:
            with contextlib.suppress(OSError):  # the user's code may have closed all there are
                os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, the lock last: what a kill leaves of it can be found again."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name != LOCK:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _machine() -> tuple[str, str]:
    """Return what tells this start of this machine, and the machine's name."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        boot = ""
    return boot, socket.gethostname()
