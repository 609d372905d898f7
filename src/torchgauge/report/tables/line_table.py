"""The source lines whose Python code takes most time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import PurePath

from torchgauge.records.timeline.tree import LineTime
from torchgauge.report.content.document import Column, Note, Row, Table, Value

SMALLEST = 0.001  # of the step: less than a sample or two
LONGEST = 32  # characters of a line's text
COLUMNS = (
    Column("layer", 2, left_aligned=True, tone="faint", max_width=24),
    Column("time", unit="time"),
    Column("share", unit="share"),
    Column("bar", 4, unit="bar"),
    Column("source", 1, left_aligned=True, max_width=LONGEST),
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
