"""The file of one process in a monitor folder: written in place, whole or not at all.

Two entries at its begin name two regions; each write takes the older. A process that is killed
meanwhile leaves the newer one valid, and what was written survives it in the kernel's cache. The
file is not mapped into memory: a mapped file that somebody truncates ends the process (SIGBUS). Its
blocks are reserved in advance, so that a disk that is full later refuses no write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import zlib
from pathlib import Path

try:
    import fcntl
except ImportError:  # whether a process is alive is unknown
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".monitor"
LARGEST = 64 * 2**20  # bytes of what is written and read
_ENTRY = struct.Struct("<8sQQQI")  # mark, number, offset, length, checksum of the data
_CHECKED = struct.Struct("<I")  # the entry's own checksum
_MARK = b"TGMON\x001\n"
_ENTRIES = (0, 512)  # positions: a sector each
_HEADER = 4096
_ROOM = 16_384  # bytes of a region at first


class ProcessFile:
    """The file of this process, which holds its lock while it lives. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(path, flags, 0o644)
        self._number = 0
        self._regions: list[tuple[int, int]] = [(_HEADER, 0), (_HEADER, 0)]  # offset, room
        self._end = _HEADER
        try:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._reserve(0, _HEADER)
        except OSError:
            self.close()
            path.unlink(missing_ok=True)
            raise

    def write(self, data: bytes) -> None:
        """Write the data in place of the last but one."""
        if len(data) > LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), self.path)
        number = self._number + 1
        turn = number % 2
        offset, room = self._regions[turn]
        if len(data) > room:
            offset, room = self._end, max(_ROOM, 2 * len(data))
            self._reserve(offset, room)
            self._regions[turn], self._end = (offset, room), offset + room
        self._write_at(data, offset)
        entry = _ENTRY.pack(_MARK, number, offset, len(data), zlib.crc32(data))
        self._write_at(entry + _CHECKED.pack(zlib.crc32(entry)), _ENTRIES[turn])
        self._number = number

    def flush(self) -> None:
        """Wait until it is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file, which ends the lock; a forked process closes its own descriptor only."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _reserve(self, offset: int, length: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, offset, length)
        else:
            os.ftruncate(self._descriptor, offset + length)

    def _write_at(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written


def read(path: Path) -> tuple[bytes | None, bool | None]:
    """Return the newest whole data of a file and whether its process lives (None: unknown).

    The data are None if there was no whole write yet. Raises OSError, as for more data than
    `LARGEST`, and ValueError for a file that is damaged or another's.
    """
    with open(path, "rb", opener=_open_plain) as file:
        descriptor = file.fileno()
        alive = _is_locked(descriptor)
        for _ in range(3):  # the owner may have written twice since the entries were read
            header = os.pread(descriptor, _HEADER, 0)
            if not any(header):
                return None, alive
            entries = [entry for begin in _ENTRIES if (entry := _entry(header, begin))]
            for _, offset, length, checksum in sorted(entries, reverse=True):
                if offset + length <= os.fstat(descriptor).st_size:
                    data = os.pread(descriptor, length, offset)
                    if zlib.crc32(data) == checksum:
                        return data, alive
    raise ValueError("no valid data")


def _open_plain(path: str, flags: int) -> int:
    """Open a file, and nothing that makes its reader wait, such as a pipe."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", path)
    return descriptor


def _entry(content: bytes, position: int) -> tuple[int, int, int, int] | None:
    """Return number, offset, length and checksum of a valid entry."""
    packed = content[position : position + _ENTRY.size]
    checked = content[position + _ENTRY.size : position + _ENTRY.size + _CHECKED.size]
    if len(checked) < _CHECKED.size or zlib.crc32(packed) != _CHECKED.unpack(checked)[0]:
        return None
    mark, number, offset, length, checksum = _ENTRY.unpack(packed)
    if length > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return (number, offset, length, checksum) if mark == _MARK else None


def _is_locked(descriptor: int) -> bool | None:
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
