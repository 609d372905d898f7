"""Reads FlatBuffers by the numbers of a schema's fields, within the bounds of the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

# A value may be shared: what is read may be more than the file, by so many times.
_TIMES, _MINIMUM = 4, 1 << 16
# Bytes beyond those of the file that stand for the memory of what is read: an entry, a table.
ENTRY, _TABLE = 4, 32


class DamagedError(ValueError):
    """The file ends where more of it should be, or refers to what is not in it."""


class Buffer:
    """The bytes of a file, and how many may still be read of it, shared ones each time."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._budget = _TIMES * len(data) + _MINIMUM

    def number(self, position: int, form: str) -> int:
        """Return the number at a position. Raises DamagedError."""
        return int(self.unpacked(position, form)[0])

    def charge(self, size: int) -> None:
        """Count bytes as read. Raises DamagedError where they are too many for the file."""
        self._budget -= size
        if self._budget < 0:
            raise DamagedError("Its parts refer to the same data too often.")

    def unpacked(self, position: int, form: str) -> tuple[Any, ...]:
        """Return what is at a position. Raises DamagedError."""
        self.charge(struct.calcsize(form))
        if position < 0:
            raise DamagedError("It refers to what is not in it.")
        try:
            return struct.unpack_from(form, self.data, position)
        except struct.error as error:
            raise DamagedError("It ends too early.") from error


class Table(NamedTuple):
    """A table at a position of the file; its fields by their numbers in the schema."""

    buffer: Buffer
    position: int

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Return a number in one of `struct`'s formats, such as "<i"."""
        position = self._position_of(field)
        return default if position is None else self.buffer.number(position, form)

    def real(self, field: int) -> float:
        """Return a number of eight bytes with a fraction."""
        position = self._position_of(field)
        return 0.0 if position is None else float(self.buffer.unpacked(position, "<d")[0])

    def text(self, field: int) -> str:
        """Return a text, "" where it is absent."""
        return b"".join(self.values(field, "s")).decode(errors="replace")

    def values(self, field: int, form: str) -> tuple[Any, ...]:
        """Return a list of numbers, each in a format such as "i"; with "s" its bytes as one."""
        position = self._target(field)
        if position is None:
            return ()
        count = self.buffer.number(position, "<I")
        if count > len(self.buffer.data):
            raise DamagedError("A list is longer than the file.")
        self.buffer.charge(0 if form == "s" else ENTRY * count)
        return self.buffer.unpacked(position + 4, f"<{count}{form}")

    def table(self, field: int) -> Table | None:
        """Return a table inside of this one."""
        position = self._target(field)
        return None if position is None else Table(self.buffer, position)

    def tables(self, field: int) -> Iterator[Table]:
        """Yield a list of tables."""
        first = self._target(field)
        if first is None:
            return
        for number in range(1, self.buffer.number(first, "<I") + 1):
            position = first + 4 * number
            self.buffer.charge(_TABLE)
            yield Table(self.buffer, position + self.buffer.number(position, "<I"))

    def _position_of(self, field: int) -> int | None:
        """Return where a field is, None where it has its default."""
        names = self.position - self.buffer.number(self.position, "<i")
        if 4 + 2 * field >= self.buffer.number(names, "<H"):
            return None
        offset = self.buffer.number(names + 4 + 2 * field, "<H")
        return self.position + offset if offset else None

    def _target(self, field: int) -> int | None:
        position = self._position_of(field)
        return None if position is None else position + self.buffer.number(position, "<I")


def root(data: bytes, start: int = 0) -> Table:
    """Return the outermost table of a file whose FlatBuffer begins at `start`."""
    buffer = Buffer(data)
    return Table(buffer, start + buffer.number(start, "<I"))
