"""Files are written whole or not at all; what can be read once is not read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchgauge.errors import InputError

# A part that nobody has written to for so many seconds was left by a process that was killed.
ABANDONED = 600.0
# More than most records take: a full disk is found before measuring, not after.
ROOM = 2**20
# What lies there is made while it is read.
_KERNEL = ("/proc", "/sys")
_GZIP = 31  # zlib's number for gzip with the largest window


def check_readable(path: Path, *, pipe: bool = False) -> None:
    """Raise InputError for what cannot be read from begin to end, before anything is taken from it.

    A file, a folder and nothing at all pass, with `pipe` a pipe too. `file-not-regular`: a pipe, a
    device, a socket, or a file that the kernel makes up while it is read (/proc/kmsg has no end).
    `file-missing`: a name that no file can have, or a place that may not be looked at.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        raise InputError(
            f"'{path}' cannot be opened.",
            id="file-missing",
            cause=getattr(error, "strerror", None) or str(error),
            remedy="Check the path.",
        ) from error
    if stat.S_ISDIR(status.st_mode) or (pipe and stat.S_ISFIFO(status.st_mode)):
        return
    if stat.S_ISREG(status.st_mode) and not _made_up(path, status):
        return
    raise InputError(
        f"{path} is {_kind(status.st_mode)}.",
        id="file-not-regular",
        cause="What it gives can be had once, or has no end; a file is read from its begin more "
        "than once.",
        remedy="Write it to a file first, and name that; packed files are read as they are.",
    )


def _made_up(path: Path, status: os.stat_result) -> bool:
    """Tell whether a regular file lies on no disk: the kernel answers whoever reads it."""
    for folder in map(Path, _KERNEL):
        # Where nothing is mounted there, the folder is one of the disk's.
        if folder.is_mount() and folder.stat().st_dev == status.st_dev:
            return True
    # Another mount of such a file system: it has no blocks, and its files no size.
    return status.st_size == 0 and os.statvfs(path).f_blocks == 0


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a file of the kernel's" if stat.S_ISREG(mode) else "a device"


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> Path:
    """Write `data` to `path` so that any reader sees the old file or the new one, and return it.

    A process killed meanwhile leaves a hidden `.part` file, which a later write of the same path
    removes. Raises InputError `output-unwritable` where the folder cannot be made or written.
    """
    import tempfile  # every verb's --help would wait for it

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    _remove_abandoned(path)
    return path


def packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts as gzip."""
    packer = zlib.compressobj(wbits=_GZIP)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def check_writable(folder: Path) -> None:
    """Make `folder` and raise InputError `output-unwritable` where no record can be put there."""
    probe = write_atomically(folder / ".torchgauge-writable", bytes(ROOM))
    probe.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Raise InputError `output-unwritable` where no file can be put at `path`."""
    if path.is_dir():
        raise _unwritable(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    check_writable(path.parent)


def _remove_abandoned(path: Path) -> None:
    """Delete the parts of `path` that killed processes left; a writer at work is left alone."""
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            named = entry.name.startswith(f".{path.name}.") and entry.name.endswith(".part")
            if named and time.time() - entry.stat().st_mtime > ABANDONED:
                Path(entry.path).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"'{path}' could not be written.",
        id="output-unwritable",
        cause=error.strerror or str(error),
        remedy="Choose another place, or free space and check its permissions.",
    )
