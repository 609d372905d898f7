"""Limits on what is read from a file: a small file of a stranger may unpack to anything.

A bound is in bytes of what is unpacked. What a reader makes of that in memory is a small multiple,
which docs/limits.md says for each.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torchgauge import units
from torchgauge.errors import InputError
from torchgauge.files import check_readable, path_remedy

VARIABLE = "TORCHGAUGE_READ_LIMIT"
_CHUNK_SIZE = 1 << 20


class Bound(NamedTuple):
    """The most bytes that a file may unpack to: `times` its own size, between two limits."""

    minimum: int
    times: int
    maximum: int

    def limit_for(self, size: int) -> int:
        """Return the bound of a file of `size` bytes; TORCHGAUGE_READ_LIMIT stands above all.

        Raises InputError `read-limit-invalid` where the variable is no number of bytes.
        """
        raised = _raised()
        return max(self.minimum, min(self.times * size, self.maximum)) if raised is None else raised


# Packed traces hold 10 to 25 times their size; ten times that is no trace.
TRACE = Bound(minimum=1 << 28, times=250, maximum=1 << 38)
# Of these there may be thousands in one archive.
MEMBER = Bound(minimum=1 << 20, times=250, maximum=1 << 38)
# One event, or what stands before or after all of them.
EVENT = Bound(minimum=1 << 28, times=0, maximum=1 << 28)
# All of it is in memory at once.
SNAPSHOT = Bound(minimum=1 << 24, times=100, maximum=1 << 33)
RECORD = Bound(minimum=1 << 24, times=100, maximum=1 << 28)
# Tensors are not packed; the pickle beside them says what they are called.
WEIGHTS = Bound(minimum=1 << 28, times=2, maximum=1 << 50)
PICKLE = Bound(minimum=1 << 26, times=0, maximum=1 << 26)
RULES = Bound(minimum=1 << 20, times=1, maximum=1 << 20)


def read_bytes(path: Path, bound: Bound) -> bytes:
    """Return what is in a file that is not packed.

    Raises InputError `file-not-regular`, `file-missing`, and `file-too-large` above the bound.
    """
    check_readable(path)
    try:
        with path.open("rb") as file:
            limit = bound.limit_for(os.fstat(file.fileno()).st_size)
            data = file.read(limit + 1)
    except OSError as error:
        raise unreadable(f"'{path}'", error, path_remedy(path)) from error
    if len(data) > limit:
        raise too_large(f"'{path}'", "It", limit)
    return data


def unreadable(subject: str, error: OSError, remedy: str = "Check the path.") -> InputError:
    """Return the error that a file or a folder cannot be read, with the system's reason."""
    return InputError(
        f"{subject} cannot be read.",
        id="file-missing",
        cause=error.strerror or str(error),
        remedy=remedy,
    )


def inflated(data: bytes, bound: Bound, name: str) -> bytes:
    """Return what zlib packed. Raises zlib.error, InputError `file-too-large` above the bound."""
    limit = bound.limit_for(len(data))
    chunks = list(_inflated(data, limit))
    if sum(map(len, chunks)) > limit:
        raise too_large(name, f"What its {len(data):,} bytes unpack to", limit)
    return b"".join(chunks)


def _inflated(data: bytes, limit: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj()
    size = 0
    while not unpacker.eof and size <= limit:
        chunk = unpacker.decompress(data, _CHUNK_SIZE)
        data = unpacker.unconsumed_tail
        if not chunk and not data and not unpacker.eof:
            raise zlib.error("it is cut off")
        size += len(chunk)
        yield chunk


def too_large(name: str, subject: str, limit: int, id: str = "file-too-large") -> InputError:
    """Return the error for more than `most` bytes; `what` begins its cause."""
    return InputError(
        f"{name} was not read to its end.",
        id=id,
        cause=f"{subject} is more than {units.size(limit)}, as none is that torchgauge reads.",
        remedy=f"If it is meant to be so, raise the limit: {VARIABLE}={2 * limit} (bytes).",
    )


def _raised() -> int | None:
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        limit = int(float(text))
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise InputError(
            f"{VARIABLE} is not a number of bytes: '{text}'.",
            id="read-limit-invalid",
            remedy=f"Write it as 8e9 or 8000000000, or unset {VARIABLE}.",
        )
    return limit
