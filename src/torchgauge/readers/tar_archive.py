"""The traces in a tar archive, plain or packed with gzip (`.tar`, `.tar.gz`, `.tgz`).

It is read from its begin, for tar has no list of its members: a member is reached by reading, and
unpacking, what is before it. Nothing is unpacked to disk. Members have paths as those of a zip.
"""

from __future__ import annotations

import contextlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, BinaryIO

from torchgauge.errors import InputError
from torchgauge.files import is_file
from torchgauge.reading import TRACE, too_large

SIGNATURE = b"PK\x03\x04"
ENDS = (".json", ".json.gz", ".zip", ".chrome_trace")  # the last of Proton's
UNREADABLE = (
    zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError, struct.error,
)  # fmt: skip
# Each trace would be a process of its own; no job has as many ranks.
_MAX_TRACES = 4096
# Each trace of an archive is looked for among all of its files.
MAX_FILES = 16 * _MAX_TRACES
_NO_TRACES = "__MACOSX"  # macOS puts what is no content of a file there, under the file's name


def traces(archive: zipfile.ZipFile, name: str, size: int) -> list[zipfile.ZipInfo]:
    """Return the members that end as traces do, by name; `size` is that of the archive in bytes.

    Raises InputError `trace-archive` where they are not in one folder, where a name leads out of
    it or is there twice, where members overlap, or where they are too many.
    """
    if len(archive.infolist()) > MAX_FILES:
        count = len(archive.infolist())
        raise refused(name, f"It holds {count:,} files; up to {MAX_FILES:,} are looked at.")
    members = [member for member in archive.infolist() if is_trace(member.filename)]
    check_names([member.filename for member in members], name)
    if sum(member.compress_size for member in members) > size:
        raise refused(
            name, "Files in it share their bytes, which makes a small archive a large one."
        )
    return sorted(members, key=lambda member: PurePosixPath(member.filename).name)


def is_trace(name: str) -> bool:
    """Return whether a member of this name is a trace."""
    return name.endswith(ENDS) and PurePosixPath(name).parts[0] != _NO_TRACES


def check_names(names: Sequence[str], archive: str) -> None:
    """Raise InputError `trace-archive` for names of traces that an archive must not have.

    They are not in one folder, one leads out of it or is there twice, or they are too many.
    """
    if len(names) > _MAX_TRACES:
        raise refused(archive, f"It holds {len(names):,} traces; up to {_MAX_TRACES:,} are read.")
    paths = [PurePosixPath(name) for name in names]
    if bad := next((name for name in names if _leads_out(name)), None):
        raise refused(archive, f"A name in it leads out of it: {bad[:200]}.")
    duplicate, times = Counter(paths).most_common(1)[0] if paths else (None, 0)
    if times > 1:
        raise refused(archive, f"Two files in it have the name {str(duplicate)[:200]}.")
    folders = sorted({str(path.parent)[:200] for path in paths})
    if len(folders) > 1:
        raise refused(archive, f"Its traces are in several folders: {', '.join(folders[:5])}.")


def _leads_out(name: str) -> bool:
    windows_path = PureWindowsPath(name)  # it takes both kinds of slash for one
    return bool(windows_path.anchor) or ".." in windows_path.parts


def refused(name: str, cause: str) -> InputError:
    """Return the error that an archive is not read."""
    return InputError(
        f"{name} was not read.",
        id="trace-archive",
        cause=cause,
        remedy="Unpack it, and name one of the files or the folder with the ranks' files.",
    )


def trace_paths(path: Path) -> Sequence[Path]:
    """Return the paths of the traces in an archive; none where the archive is incomplete.

    Raises InputError as `traces`.
    """
    if not is_file(path):  # a pipe's bytes would be gone
        return ()
    try:
        with path.open("rb") as file:
            if file.read(len(SIGNATURE)) != SIGNATURE:
                return ()
            with zipfile.ZipFile(file) as archive:
                members = traces(archive, str(path), path.stat().st_size)
    except UNREADABLE:
        return ()
    return [path / member.filename for member in members]


def find(path: Path) -> tuple[zipfile.ZipFile, zipfile.ZipInfo] | None:
    """Return the archive that a path leads into, open, and the member; None where it does not."""
    for ancestor in path.parents:
        try:
            if not ancestor.is_file():
                continue
            archive = zipfile.ZipFile(ancestor)
        except UNREADABLE:
            continue
        member_path = PurePosixPath(path.relative_to(ancestor).as_posix())
        for member in archive.infolist():
            if PurePosixPath(member.filename) == member_path:
                return archive, member
        archive.close()
    return None


_GZIP = b"\x1f\x8b"
# Packed bytes read at once: the bytes after the end of each of thousands of streams are copied.
_PACKED = 1 << 14


class PackingError(Exception):
    """The packed bytes are cut off or damaged; what was unpacked before is good."""


def text(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield what a file holds in chunks of about `size` bytes; raises PackingError."""
    start = file.read(len(_GZIP))
    file.seek(0)
    if start == _GZIP:
        yield from _inflated(file, size)
    else:
        while chunk := file.read(size):
            yield chunk


def _inflated(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield what is in a gzip file, and in those that follow it in the same file."""
    inflate = zlib.decompressobj(wbits=31)
    waiting, started = b"", False
    while True:
        waiting = waiting or file.read(min(size, _PACKED))
        if not waiting:
            break
        if inflate.eof:
            waiting = waiting.lstrip(b"\0")  # padding, as on tapes
            if not waiting:
                continue
            inflate = zlib.decompressobj(wbits=31)
        try:
            chunk = inflate.decompress(waiting, size)
        except zlib.error as error:
            raise PackingError(f"The gzip data is damaged: {error}") from error
        waiting = inflate.unconsumed_tail or inflate.unused_data
        started = True
        if chunk:
            yield chunk
    if started and not inflate.eof:
        raise PackingError("The gzip data is cut off.")


TAR, MAGIC_AT = b"ustar", 257  # of the first header
_CHUNK = 1 << 18
_BLOCK = 512


def is_tar(file: BinaryIO) -> bool:
    """Return whether a file is a tar archive, plain or packed; it is at its begin afterwards."""
    try:
        first = b""
        for chunk in text(file, _BLOCK):
            first += chunk
            if len(first) >= _BLOCK:
                break
    except PackingError:
        return False
    finally:
        file.seek(0)
    return first[MAGIC_AT:].startswith(TAR)


def tar_paths(path: Path) -> Sequence[Path]:
    """Return the paths of the traces in a tar archive, by name; none of another file.

    Raises InputError as `tar_traces`. Of an incomplete archive there are none.
    """
    if not is_file(path):
        return ()
    try:
        with path.open("rb") as file:
            names = tar_traces(file, str(path)) if is_tar(file) else ()
    except (OSError, PackingError):
        return ()
    return [path / name for name in names]


def tar_traces(file: BinaryIO, name: str) -> list[str]:
    """Return the names of the members that end as traces do, in order.

    Raises PackingError where it is damaged; InputError `trace-archive` as `archive.check_names`,
    and for too many files; `trace-too-large` for one that unpacks beyond all reason.
    """
    names, count = [], 0
    with _opened(file, name) as archive:
        for member in archive:
            count += 1
            if count > MAX_FILES:
                raise refused(name, f"It holds more than {MAX_FILES:,} files.")
            if member.isfile() and is_trace(member.name):
                names.append(member.name)
    check_names(names, name)
    return sorted(names, key=lambda member: PurePosixPath(member).name)


def tar_member(path: Path) -> TarMember | None:
    """Return the member that a path leads to (`ranks.tar/rank0.json`); None where it does not."""
    for ancestor in path.parents:
        if not is_file(ancestor):
            continue
        file = ancestor.open("rb")
        name = path.relative_to(ancestor).as_posix()
        with contextlib.suppress(PackingError):
            if is_tar(file) and name in map(_plain, tar_traces(file, str(ancestor))):
                return TarMember(file, name)
        file.close()
    return None


class TarMember(io.BufferedIOBase):
    """A member of a tar archive as a file; `packed` are the bytes of all of the archive.

    Reading raises PackingError where it is damaged.
    """

    def __init__(self, archive: BinaryIO, name: str) -> None:
        self._archive, self._name = archive, name
        self.packed = archive.seek(0, io.SEEK_END)
        self._file: IO[bytes] | None = None

    def read(self, size: int | None = -1) -> bytes:
        """Return at most `size` bytes, all that are left for None or −1."""
        if self._file is None:
            self._file = self._opened()
        with _damage():
            return self._file.read(-1 if size is None else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to the begin, the one place to which it can go."""
        if offset or whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a member of a tar archive is read from its begin")
        self._file = None
        return 0

    def close(self) -> None:
        """Close the archive too."""
        self._archive.close()
        super().close()

    def _opened(self) -> IO[bytes]:
        archive = _stream(self._archive, self._name)
        with _damage():
            for member in archive:
                if member.isfile() and _plain(member.name) == _plain(self._name):
                    file = archive.extractfile(member)
                    if file is not None:
                        return file
        raise PackingError("The tar archive has changed while it was read.")


def _plain(name: str) -> str:
    return PurePosixPath(name).as_posix()


@contextlib.contextmanager
def _opened(file: BinaryIO, name: str) -> Iterator[tarfile.TarFile]:
    with _damage():
        yield _stream(file, name)


def _stream(file: BinaryIO, name: str) -> tarfile.TarFile:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    with _damage():
        return tarfile.open(fileobj=_Text(file, name, TRACE.limit_for(size)), mode="r|")


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise PackingError(f"The tar archive is damaged or cut off: {error}") from error


class _Text(io.RawIOBase):
    """What a file holds, unpacked, up to a limit."""

    def __init__(self, file: BinaryIO, name: str, limit: int) -> None:
        self._chunks = text(file, _CHUNK)
        self._chunk, self._offset = b"", 0
        self._name, self._limit, self._total = name, limit, 0

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing:
            if self._offset == len(self._chunk):
                self._chunk, self._offset = next(self._chunks, b""), 0
                self._total += len(self._chunk)
                if self._total > self._limit:
                    raise too_large(self._name, "It", self._limit, "trace-too-large")
                if not self._chunk:
                    break
            end = len(self._chunk) if missing < 0 else self._offset + missing
            part = self._chunk[self._offset : end]
            self._offset += len(part)
            parts.append(part)
            missing -= len(part) if missing > 0 else 0
        return b"".join(parts)
