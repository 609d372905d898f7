"""The source lines whose Python code takes most time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from torchgauge import units
from torchgauge.records.timeline.tree import LineTime, TracedFunction, TracedLine
from torchgauge.report.content.document import Block, Column, Note, Row, Table, Value

SMALLEST = 0.001  # of the step: less than a sample or two
LONGEST = 32  # characters of a line's text
COLUMNS = (
    Column("layer", priority=2, left_aligned=True, tone="faint", max_width=24),
    Column("time", unit="time"),
    Column("share", unit="share"),
    Column("bar", priority=4, unit="bar"),
    Column("source", priority=1, left_aligned=True, max_width=LONGEST),
)


def table(lines: Iterable[LineTime], top: int) -> Table | Note:
    """Return the `top` lines; a line that several layers share is one row."""
    by_position = sorted(lines, key=lambda line: (line.file, line.line))
    groups = [
        list(group)
        for _, group in itertools.groupby(by_position, lambda line: (line.file, line.line))
    ]
    groups = [group for group in groups if _share(group) >= SMALLEST]
    groups.sort(key=_share, reverse=True)
    if not groups:
        return Note("no line of Python's takes 0.1 % of the step", tone="faint")
    rows = list(map(_row, groups[:top]))
    return Table(first="line of Python", columns=COLUMNS, rows=rows, recorded=True, layout="fitted")


def _row(group: list[LineTime]) -> Row:
    first, share = group[0], _share(group)
    layers = {line.layer for line in group}
    cells: dict[str, Value] = {
        "layer": first.layer if len(layers) == 1 else f"{len(layers)} layers",
        "time": sum(line.time for line in group),
        "share": share,
        "bar": share,
        "source": first.source[: LONGEST - 1] + "…"
        if len(first.source) > LONGEST
        else first.source,
    }
    return Row(f"{PurePath(first.file).name}:{first.line}", cells)


def _share(group: list[LineTime]) -> float:
    return sum(line.share for line in group)


FUNCTIONS, LINES = 5, 12
LONGEST_TRACED = 60  # columns of a line's text at most
TRACED_COLUMNS = (
    Column("hits", priority=2, unit="count"),
    Column("time", unit="time"),
    Column("share", unit="share"),
    Column("allocated", unit="bytes"),
    Column(
        "source", priority=1, left_aligned=True, recorded=True, max_width=LONGEST_TRACED, reserve=45
    ),
)


def traced_lines(functions: Sequence[TracedFunction]) -> Iterator[Block]:
    """Yield a table for each of the functions with most time."""
    if not functions:
        yield Note("Lines: no function of this name, or none of the script's own, ran", "faint")
    for function in functions[:FUNCTIONS]:
        rows = [Row(str(line.line), _cells(line, function)) for line in _top_lines(function)]
        yield Table(
            title=_title(function),
            first="line",
            columns=TRACED_COLUMNS,
            rows=rows,
            layout="fitted",
            total_rows=len(function.lines),
            noun="lines",
        )
    omitted_count = len(functions) - FUNCTIONS
    if omitted_count > 0:
        yield Note(f"… {omitted_count:,} other functions", "faint", tight=True)


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
