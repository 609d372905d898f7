"""Text that may be packed with gzip, unpacked while it is read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO

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
