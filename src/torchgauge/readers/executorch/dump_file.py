"""Reads ETDumps (`.etdp`): how long each instruction of a program took, run by run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from torchgauge.readers.executorch.flatbuffer import DamagedError, Table, root

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
