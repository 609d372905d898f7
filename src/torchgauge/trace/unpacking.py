"""The bytes of a trace file, unpacked while they are read: plain, gzip, or the member of a zip."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from torchgauge.errors import InputError

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
# Traces pack 10 to 40 times; ten times that is no trace. Small ones do no harm.
_LARGEST_RATIO = 400
_HARMLESS = 1 << 30


class PackingError(Exception):
    """The packed bytes are cut off or damaged; what was unpacked before is good."""


def open_trace(source: Path | bytes) -> BinaryIO:
    """Open the file or the bytes. Raises InputError `file-missing`, `trace-directory`."""
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if source.is_dir():
        # A directory of ranks would be read here, one file after the other.
        raise InputError(
            f"{source} is a directory.",
            id="trace-directory",
            cause="One trace is read at a time.",
            remedy="Name one of the files in it.",
        )
    try:
        return source.open("rb")
    except OSError as error:
        raise InputError(
            f"{source} cannot be opened.",
            id="file-missing",
            cause=str(error),
            remedy="Check the path.",
        ) from error


def unpacked(file: BinaryIO, name: str, size: int) -> Iterator[bytes]:
    """Yield the text of a trace in pieces of about `size` bytes, as packed files are unpacked.

    Raises PackingError where it is damaged, InputError `trace-archive` for a zip that does not hold
    exactly one trace, `trace-too-large` for one that inflates beyond all reason.
    """
    packed = file.seek(0, io.SEEK_END)
    file.seek(0)
    limit = max(_HARMLESS, packed * _LARGEST_RATIO)
    total = 0
    for piece in _unpacked(file, name, size):
        total += len(piece)
        if total > limit:
            raise InputError(
                f"{name} was not read to its end.",
                id="trace-too-large",
                cause=f"Its {packed:,} bytes unpack to more than {limit:,}, as no trace does.",
                remedy="Unpack it yourself if it is meant to be so.",
            )
        yield piece


def _unpacked(file: BinaryIO, name: str, size: int) -> Iterator[bytes]:
    start = file.read(len(_ZIP))
    file.seek(0)
    if start == _ZIP:
        yield from _member(file, name, size)
    else:
        yield from _text(file, size)


def _text(file: IO[bytes], size: int) -> Iterator[bytes]:
    start = file.read(len(_GZIP))
    file.seek(0)
    if start == _GZIP:
        yield from _inflated(file, size)
    else:
        while piece := file.read(size):
            yield piece


def _inflated(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield what is in a gzip file, and in those that follow it in the same file."""
    inflate = zlib.decompressobj(wbits=31)
    waiting, started = b"", False
    while True:
        waiting = waiting or file.read(size)
        if not waiting:
            break
        if inflate.eof:
            if not waiting.strip(b"\0"):  # padding, as on tapes
                waiting = b""
                continue
            inflate = zlib.decompressobj(wbits=31)
        try:
            piece = inflate.decompress(waiting, size)
        except zlib.error as error:
            raise PackingError(f"The gzip data is damaged: {error}") from error
        waiting = inflate.unconsumed_tail or inflate.unused_data
        started = True
        if piece:
            yield piece
    if started and not inflate.eof:
        raise PackingError("The gzip data is cut off.")


def _member(file: BinaryIO, name: str, size: int) -> Iterator[bytes]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError) as error:
        raise PackingError(f"The zip archive is damaged or cut off: {error}") from error
    with archive:
        names = [n for n in archive.namelist() if n.endswith((".json", ".json.gz"))]
        if len(names) != 1:
            raise InputError(
                f"{name} holds {len(names)} traces; one was expected.",
                id="trace-archive",
                cause=f"In it are: {', '.join(archive.namelist()[:10]) or 'no files'}.",
                remedy="Unpack it and name one of the files.",
            )
        try:
            with archive.open(names[0]) as member:
                yield from _text(member, size)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise PackingError(f"The zip archive is damaged or cut off: {error}") from error
        except (RuntimeError, NotImplementedError) as error:
            raise PackingError(f"The zip archive cannot be unpacked: {error}") from error
