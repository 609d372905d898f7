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


IDENTIFIER = b"ED00"
RUN, CALLS = "Method::execute", ("OPERATOR_CALL", "DELEGATE_CALL")
_PREFIX = "native_call_"
# Numbers of fields: of a dump, a run, an event, and a profile event.
_RUNS, _EVENTS, _PROFILED = 1, 3, 0
_NAME, _INSTRUCTION, _NUMBER, _TEXT, _START, _END = 0, 2, 3, 4, 6, 7


class DumpEvent(NamedTuple):
    """A span of a run: its `name` and instruction; begin and end in the recorder's units.

    `part` names what a backend did inside of its instruction; "" of others.
    """

    name: str
    instruction: int
    begin: int
    end: int
    part: str = ""


class DumpRun(NamedTuple):
    """One run of a method, with its execution as a whole, or what came before: its events."""

    execution: DumpEvent | None
    events: tuple[DumpEvent, ...]

    @property
    def calls(self) -> list[DumpEvent]:
        """The calls of instructions, each with what dispatched it."""
        return [event for event in self.events if event.name in CALLS]

    @property
    def parts(self) -> list[DumpEvent]:
        """What backends did inside of their instructions."""
        return [event for event in self.events if event.part]


def is_dump(first: bytes) -> bool:
    """Return whether a file begins as a dump does, with or without its size before it."""
    return IDENTIFIER in (first[4:8], first[8:12])


def read_runs(data: bytes) -> list[DumpRun]:
    """Return the runs of a dump. Raises ValueError where it is damaged."""
    start = 4 if data[8:12] == IDENTIFIER else 0
    try:
        return [_run(table) for table in root(data, start).tables(_RUNS)]
    except struct.error as error:
        raise DamagedError(str(error)) from error


def _run(run: Table) -> DumpRun:
    events = tuple(_events(run))
    execution = next((event for event in events if event.name == RUN), None)
    return DumpRun(execution, events)


def _events(run: Table) -> Iterator[DumpEvent]:
    for table in run.tables(_EVENTS):
        event = table.table(_PROFILED)
        if event is None:
            continue
        begin, end = event.number(_START, "<Q"), event.number(_END, "<Q")
        if end < begin:
            raise DamagedError("An event ends before it begins.")
        number, part = event.number(_NUMBER, "<i", -1), event.text(_TEXT)
        if number >= 0 and not part:
            part = f"part {number}"
        name = event.text(_NAME).removeprefix(_PREFIX)
        yield DumpEvent(name, event.number(_INSTRUCTION, "<i", -1), begin, end, part)
