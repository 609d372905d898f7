"""The bytes of a trace file, unpacked while they are read: plain, gzip, or of an archive.

The text of a trace in Kineto's format, whichever of the formats below its file has.

Files of rocprofv3, of XLA (`xplane.pb`) and of ExecuTorch are read and translated as a whole.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from torchgauge.errors import InputError
from torchgauge.files import check_readable, path_remedy
from torchgauge.progress import Progress
from torchgauge.readers.dialects import etdump, rocprof, xplane
from torchgauge.readers.executorch.flatbuffer import is_dump
from torchgauge.readers.tar_archive import (
    SIGNATURE,
    UNREADABLE,
    PackingError,
    TarMember,
    find,
    is_tar,
    refused,
    tar_member,
    tar_traces,
    text,
    traces,
)
from torchgauge.reading import MEMBER, TRACE, Bound, too_large


def open_trace(source: Path | bytes) -> BinaryIO:
    """Open the bytes, the file, or the member of an archive (`ranks.zip/rank0.json`).

    Raises InputError `file-missing`, `file-not-regular`, `trace-directory`.
    """
    if isinstance(source, bytes):
        return io.BytesIO(source)
    check_readable(source)
    try:
        if not source.is_dir():
            return source.open("rb")
    except OSError as error:
        if (located := find(source)) is not None:
            return cast("BinaryIO", Member(*located))
        if (member := tar_member(source)) is not None:
            return cast("BinaryIO", member)
        raise InputError(
            f"{source} cannot be opened.",
            id="file-missing",
            cause=error.strerror or str(error),
            remedy=path_remedy(source),
        ) from error
    # A directory of ranks would be read here, one file after the other.
    raise InputError(
        f"{source} is a directory.",
        id="trace-directory",
        cause="One trace is read at a time.",
        remedy="Name one of the files in it.",
    )


class Member(io.BufferedIOBase):
    """A member of an archive as a file; `packed` are its bytes there.

    Reading raises PackingError where it is damaged, encrypted, or packed in another way than
    traces are: what bzip2 and LZMA make of a few bytes has no bound.
    """

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        self._archive, self._member = archive, member
        self.packed = member.compress_size

    def read(self, size: int | None = -1) -> bytes:
        """Return at most `size` bytes, all that are left for None or −1."""
        with _damage():
            return self._file.read(-1 if size is None else size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place in what is unpacked; back means from the begin again."""
        with _damage():
            return self._file.seek(offset, whence)

    @functools.cached_property
    def _file(self) -> IO[bytes]:
        if self._member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotImplementedError("its files are not packed with deflate")
        return self._archive.open(self._member)

    def close(self) -> None:
        """Close the archive too."""
        self._archive.close()  # its file goes with the last reference to it
        super().close()


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        raise PackingError(f"The zip archive cannot be unpacked: {error}") from error
    except (*UNREADABLE, zlib.error) as error:
        raise PackingError(f"The zip archive is damaged or cut off: {error}") from error


def unpacked(
    file: BinaryIO, name: str, size: int, progress: Progress | None = None, bound: Bound = TRACE
) -> Iterator[bytes]:
    """Yield the text of a trace in chunks of about `size` bytes, as packed files are unpacked.

    `bound` is of a file; a member of an archive has its own. Raises PackingError where it is
    damaged, InputError `trace-archive` for a zip that does not hold exactly one trace, or is in one
    itself, `trace-too-large` for one that inflates beyond all reason.
    """
    inside = isinstance(file, Member | TarMember)
    packed = file.packed if isinstance(file, Member | TarMember) else file.seek(0, io.SEEK_END)
    file.seek(0)
    limit = (MEMBER if inside else bound).limit_for(packed)
    total, reported = 0, 0.0
    for chunk in _unpacked(file, name, size):
        total += len(chunk)
        if (
            progress is not None
            and not inside
            and (read := file.tell() / packed) >= reported + 0.02
        ):
            progress.update(name, read)
            reported = read
        if total > limit:
            raise too_large(name, f"What its {packed:,} bytes hold", limit, "trace-too-large")
        yield chunk


def _unpacked(file: BinaryIO, name: str, size: int) -> Iterator[bytes]:
    start = file.read(len(SIGNATURE))
    file.seek(0)
    inside = isinstance(file, Member | TarMember)
    if start != SIGNATURE and (inside or not is_tar(file)):
        yield from text(file, size)
    elif inside:
        raise refused(name, "It is an archive in an archive, which is not opened.")
    elif start == SIGNATURE:
        yield from _single_trace(file, name, size)
    else:
        names = tar_traces(file, name)
        if len(names) != 1:
            raise refused(name, f"It holds {len(names)} traces; one was expected.")
        yield from _unpacked(cast("BinaryIO", TarMember(file, names[0])), name, size)


def _single_trace(file: BinaryIO, name: str, size: int) -> Iterator[bytes]:
    """Yield the text of the trace in an archive that holds no other."""
    with _damage():
        archive = zipfile.ZipFile(file)
    with archive:
        members = traces(archive, name, file.seek(0, io.SEEK_END))
        if len(members) != 1:
            names = ", ".join(archive.namelist()[:10])
            cause = f"It holds {len(members)} traces; one was expected."
            cause += f" In it are: {names or 'no files'}."
            raise refused(name, cause)
        yield from _unpacked(cast("BinaryIO", Member(archive, members[0])), name, size)


_TRANSLATED = Bound(minimum=1 << 30, times=0, maximum=1 << 30)
_BEGINNING = 400
_PERFETTO = (".pftrace", ".perfetto-trace", ".perfetto")


def trace_text(
    file: BinaryIO, name: str, size: int, progress: Progress | None = None
) -> Iterator[bytes]:
    """Yield the text of a trace in chunks of about `size` bytes, as `unpacked` does.

    Raises also InputError `trace-malformed` for a damaged file of another format,
    `trace-too-large` for one of more than a gibibyte, and `trace-format` for those that are not
    read.
    """
    if name.endswith(_PERFETTO):
        raise InputError(
            f"{name} is in Perfetto's own format, which is not read.",
            id="trace-format",
            remedy="Record as JSON: rocprofv3 --output-format json.",
        )
    chunks = unpacked(file, name, size, progress)
    first = next(chunks, b"")
    texts = itertools.chain([first], chunks)
    if rocprof.START in first[:_BEGINNING]:
        yield _translated(texts, name, rocprof.as_kineto)
    elif xplane.is_xplane(name, first):
        yield _translated(texts, name, xplane.as_trace)
    elif is_dump(first):
        yield _translated(texts, name, etdump.as_kineto)
    else:
        yield from texts


def _translated(texts: Iterable[bytes], name: str, translate: Callable[[bytes], bytes]) -> bytes:
    parts, total, limit = [], 0, _TRANSLATED.limit_for(0)
    for part in texts:
        parts.append(part)
        total += len(part)
        if total > limit:
            raise too_large(name, "It", limit, "trace-too-large")
    try:
        return translate(b"".join(parts))
    except (ValueError, RecursionError, OverflowError) as error:
        raise InputError(
            f"{name} cannot be read.",
            id="trace-malformed",
            cause=f"It is damaged, or of a version that is not known: {error}",
            remedy="Record it again.",
        ) from error
