"""Traced functions: for each its lines with most time, in the order of the source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from torchgauge import units
from torchgauge.records.timeline.tree import TracedFunction, TracedLine
from torchgauge.report.content.document import Block, Column, Note, Row, Table, Value

FUNCTIONS, LINES = 5, 12
LONGEST = 60  # columns of a line's text at most
COLUMNS = (
    Column("hits", 2, unit="count"),
    Column("time", unit="time"),
    Column("share", unit="share"),
    Column("allocated", unit="bytes"),
    Column("source", 1, left_aligned=True, recorded=True, max_width=LONGEST, reserve=45),
)


def traced_lines(functions: Sequence[TracedFunction]) -> list[Block]:
    """Return a table for each of the functions with most time."""
    if not functions:
        return [Note("Lines: no function of this name, or none of the script's own, ran", "faint")]
    blocks: list[Block] = []
    for function in functions[:FUNCTIONS]:
        rows = [Row(str(line.line), _cells(line, function)) for line in _top_lines(function)]
        blocks.append(
            Table(
                title=_title(function),
                first="line",
                columns=COLUMNS,
                rows=rows,
                layout="fitted",
                total_rows=len(function.lines),
                noun="lines",
            )
        )
    omitted_count = len(functions) - FUNCTIONS
    note = Note(f"… {omitted_count:,} other functions", "faint", tight=True)
    return [*blocks, *([note] if omitted_count > 0 else [])]


def _title(function: TracedFunction) -> str:
    """Return a function's name and place, its time, calls and allocated memory."""
    calls = f"{function.calls:,} call{'' if function.calls == 1 else 's'}"
    memory = (
        "" if function.allocated is None else f", {units.size(function.allocated, 3)} allocated"
    )
    place = f"{PurePath(function.file).name}:{function.line}"
    return f"{function.name} ({place}): {units.time(function.time, 3)}, {calls}{memory}"


def _top_lines(function: TracedFunction) -> list[TracedLine]:
    """Return the lines with most time and those with most memory, in source order."""
    by_time = sorted(function.lines, key=lambda line: -line.time)[:LINES]
    by_size = sorted(function.lines, key=lambda line: -(line.allocated or 0))[: LINES // 4]
    line_numbers = {line.line for line in (*by_time, *(line for line in by_size if line.allocated))}
    return [line for line in function.lines if line.line in line_numbers]


def _cells(line: TracedLine, function: TracedFunction) -> dict[str, Value]:
    cells: dict[str, Value] = {"hits": line.hits, "time": line.time, "source": line.source}
    cells["share"] = line.time / function.time if function.time else ""
    return cells | ({} if line.allocated is None else {"allocated": line.allocated})
