"""Write files atomically, and read only regular files.

Symbolic links are followed, a file that is replaced keeps its mode and owner, and what cannot be
replaced (a device, a pipe, a descriptor such as /dev/stdout) is written to.
"""

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
from torchgauge.similar import did_you_mean, similar

TYPE_CHECKING = False  # typing would be a part of the time of --help
if TYPE_CHECKING:
    from typing import BinaryIO

# A part that nobody has written to for so many seconds was left by a process that was killed.
ABANDONED = 600.0
# More than most records take: a full disk is found before measuring, not after.
ROOM = 2**20
MOST_LINKS = 40  # as Linux follows them
LONGEST_NAME = 200  # bytes of a file's name in that of its part; file systems take 255 in all
# What lies there is made while it is read.
_KERNEL = ("/proc", "/sys")
_GZIP = 31  # zlib's number for gzip with the largest window
_DESCRIPTORS = "/proc/self/fd"  # where /dev/stdout and /dev/fd lead to
# Where descriptors lead to that stand for others meanwhile: see `standing_in`.
_moved: dict[int, int] = {}


def is_file(path: Path) -> bool:
    """Return whether there is a file; False as well without permission, or without a name.

    `Path.is_file` raises then, up to Python 3.13.
    """
    return os.path.isfile(path)  # noqa: PTH113 - see above


def is_folder(path: Path) -> bool:
    """Return whether there is a folder; False as well without permission."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def path_remedy(path: Path) -> str:
    """Return what to do about a missing file: name the one that was probably meant."""
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - texts, to compare
    except (OSError, ValueError):
        return "Check the path."
    near = similar(path.name, names, limit=1, cutoff=0.7)
    return did_you_mean([str(path.with_name(name)) for name in near], "Check the path.")


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
        cause="It can be read only once, or has no end; a file is read from its begin more "
        "than once.",
        remedy="Write it to a file first, and name that; packed files are read as they are.",
    )


def check_file(path: Path, kind: str = "file") -> None:
    """Raise InputError `file-missing` where there is no such file, and as `check_readable`."""
    check_readable(path)
    if not is_file(path):
        raise InputError(f"There is no {kind} {path}.", id="file-missing", remedy=path_remedy(path))


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
    removes. Raises InputError `output-unwritable` where the folder cannot be made or written, the
    file is protected or would change its owner, nobody reads the pipe, or it is a disk or a socket.
    """
    parts = [data] if isinstance(data, bytes) else data
    try:
        place = _place(path)
        if isinstance(place, int):
            _write_to(os.dup(_moved.get(place, place)), parts)
        elif _is_stream(place):
            _write_to(_opened(place), parts)
        else:
            with _part(place) as (part, file):
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
                part.replace(place)
            _remove_abandoned(place)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def append(path: Path, text: str) -> None:
    """Add a text to a file's end; raises OSError, and at once for a pipe without a reader."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
        file.write(text)


def packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts as gzip."""
    packer = zlib.compressobj(wbits=_GZIP)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def check_writable(folder: Path) -> None:
    """Make `folder` and raise InputError `output-unwritable` where no record can be put there."""
    check_replaceable(folder / ".torchgauge-writable")


def check_replaceable(path: Path) -> None:
    """Raise InputError `output-unwritable` where no file can be put at `path`; make its folder."""
    try:
        place = _place(path)
        if isinstance(place, int):
            os.close(os.dup(_moved.get(place, place)))
        elif not _is_stream(place):
            with _part(place) as (_, file):
                file.write(bytes(ROOM))
    except OSError as error:
        raise _unwritable(path, error) from error


@contextlib.contextmanager
def standing_in(descriptor: int, substitute: int) -> Iterator[None]:
    """Write what is for `descriptor` to `instead` while the block leads the former elsewhere."""
    _moved[descriptor] = substitute
    try:
        yield
    finally:
        del _moved[descriptor]


def _place(path: Path) -> Path | int:
    """Return the file that symbolic links lead to, or the number of one of our descriptors."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "Its name holds a NUL")
    own = os.path.realpath(_DESCRIPTORS)
    for _ in range(MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if folder == own and path.name.isdecimal():
            return int(path.name)
        path = Path(folder, path.name)
        if not path.is_symlink():
            return path
        path = Path(folder, os.readlink(path))  # noqa: PTH115 - Path.readlink drops a "./"
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_stream(path: Path) -> bool:
    """Return whether `path` takes bytes and keeps none; raises OSError for anything but a file."""
    try:
        kind = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISBLK(kind) or stat.S_ISSOCK(kind):
        raise OSError(errno.EINVAL, "It is a disk or a socket")
    return not stat.S_ISREG(kind)


def _opened(stream: Path) -> int:
    """Return a descriptor of a device or a pipe; not waiting for a reader that may never come."""
    try:
        opened = os.open(stream, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO and stream.is_fifo():
            raise OSError(errno.ENXIO, "The pipe has no reader") from error
        raise
    os.set_blocking(opened, True)
    return opened


def _write_to(descriptor: int, parts: Iterable[bytes]) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(parts)


@contextlib.contextmanager
def _part(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a new file beside `path`, with the mode and owner of the one that it may replace."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # a file is there
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    part = path.with_name(f"{_beginning(path)}{os.urandom(4).hex()}.part")
    try:
        # What is in a protected file is nobody's business while it is written either.
        mode = 0o600 if path.exists() else 0o666
        with open(part, "xb", opener=lambda name, how: os.open(name, how, mode)) as file:
            with contextlib.suppress(FileNotFoundError):
                _keep_facts(path, file)
            yield part, file
    finally:
        part.unlink(missing_ok=True)


def _keep_facts(old: Path, file: BinaryIO) -> None:
    """Give the open file the owner and the mode of `old`; raises OSError where that cannot be."""
    was, now = old.stat(), os.fstat(file.fileno())
    if not os.access(old, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, "It is write-protected")
    if (was.st_uid, was.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.fchown(file.fileno(), was.st_uid, was.st_gid)
        except OSError as error:
            cause = "It belongs to another user, and a new one would be yours"
            raise PermissionError(errno.EPERM, cause) from error
    if stat.S_IMODE(was.st_mode) != stat.S_IMODE(now.st_mode):
        os.fchmod(file.fileno(), stat.S_IMODE(was.st_mode) & 0o777)


def _beginning(path: Path) -> str:
    """Return how the parts of a file are named; names of the longest do not grow any longer."""
    name = path.name
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f"{zlib.crc32(os.fsencode(name)):08x}"
    return f".{name}."


def _remove_abandoned(path: Path) -> None:
    """Delete the parts of `path` that killed processes left; a writer at work is left alone."""
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            named = entry.name.startswith(_beginning(path)) and entry.name.endswith(".part")
            if named and time.time() - entry.stat().st_mtime > ABANDONED:
                Path(entry.path).unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"'{path}' could not be written.",
        id="output-unwritable",
        cause=error.strerror or str(error),
        remedy="Choose another place, or free space and check its permissions.",
    )
