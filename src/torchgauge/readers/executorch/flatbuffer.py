"""Reads FlatBuffers by the numbers of a schema's fields, within the bounds of the file."""

from __future__ import annotations

import struct
from typing import NamedTuple

# A value may be shared: what is read may be more than the file, by so many times.
_TIMES, _MINIMUM = 4, 1 << 16


class DamagedError(ValueError):
    """The file ends where more of it should be, or refers to what is not in it."""


class Buffer:
    """The bytes of a file, and how many elements may still be read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._budget = _TIMES * len(data) + _MINIMUM

    def number(self, position: int, form: str) -> int:
        """Return the number at a position. Raises DamagedError."""
        return int(self.unpacked(position, form)[0])

    def unpacked(self, position: int, form: str) -> tuple[float, ...]:
        """Return the numbers from a position on. Raises DamagedError."""
        self._budget -= struct.calcsize(form)
        if position < 0 or self._budget < 0:
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
        place = self._place(field)
        return default if place is None else self.buffer.number(place, form)

    def real(self, field: int) -> float:
        """Return a number of eight bytes with a fraction."""
        place = self._place(field)
        return 0.0 if place is None else self.buffer.unpacked(place, "<d")[0]

    def text(self, field: int) -> str:
        """Return a text, "" where it is absent."""
        return bytes(self.numbers(field, "B")).decode(errors="replace")

    def numbers(self, field: int, form: str) -> tuple[int, ...]:
        """Return a list of whole numbers, each in a format such as "i"."""
        return tuple(int(value) for value in self.reals(field, form))

    def reals(self, field: int, form: str = "d") -> tuple[float, ...]:
        """Return a list of numbers."""
        place = self._target(field)
        if place is None:
            return ()
        count = self.buffer.number(place, "<I")
        if count > len(self.buffer.data):
            raise DamagedError("A list is longer than the file.")
        return self.buffer.unpacked(place + 4, f"<{count}{form}")

    def table(self, field: int) -> Table | None:
        """Return a table inside of this one."""
        place = self._target(field)
        return None if place is None else Table(self.buffer, place)

    def tables(self, field: int) -> list[Table]:
        """Return a list of tables."""
        place = self._target(field)
        if place is None:
            return []
        offsets = self.numbers(field, "I")
        return [
            Table(self.buffer, place + 4 * (number + 1) + offset)
            for number, offset in enumerate(offsets)
        ]

    def _place(self, field: int) -> int | None:
        """Return where a field is, None where it has its default."""
        names = self.position - self.buffer.number(self.position, "<i")
        if 4 + 2 * field >= self.buffer.number(names, "<H"):
            return None
        offset = self.buffer.number(names + 4 + 2 * field, "<H")
        return self.position + offset if offset else None

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + self.buffer.number(place, "<I")


def root(data: bytes, start: int = 0) -> Table:
    """Return the outermost table of a file whose FlatBuffer begins at `start`."""
    buffer = Buffer(data)
    return Table(buffer, start + buffer.number(start, "<I"))
