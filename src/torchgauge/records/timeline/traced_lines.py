"""Functions of a script by line: how often each line ran, how long, what it allocated."""

from __future__ import annotations

from torchgauge.records.record import Record


class TracedLine(Record, frozen=True, kw_only=True):
    """One line of a function.

    Attributes:
        line: Its number in the file, from 1.
        hits: How often it was begun.
        time: Seconds in it and in what it called, but for the function itself again.
        allocated: Bytes that were asked for meanwhile; None where they were not recorded.
        source: Its text.
    """

    line: int
    hits: int
    time: float
    allocated: int | None = None
    source: str = ""


class TracedFunction(Record, frozen=True, kw_only=True):
    """One function, in all threads together.

    Attributes:
        file: The path of its source.
        name: Its qualified name; "<module>" for what stands outside of functions.
        line: Where it begins.
        calls: How often it was called; a generator counts once.
        time: Seconds in it, the sum over its lines.
        allocated: Bytes, the sum over its lines; None where they were not recorded.
        lines: Those that ran, in order.
    """

    file: str
    name: str
    line: int
    calls: int
    time: float
    allocated: int | None = None
    lines: tuple[TracedLine, ...] = ()
