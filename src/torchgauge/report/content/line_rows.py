"""The source lines whose Python code takes most time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import PurePath

from rich.console import RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.timeline.line_time import LineTime
from torchgauge.report.console.bar import bar
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.text import Text

SMALLEST = 0.001  # of the step: less than a sample or two
LONGEST = 32  # characters of a line's text
COLUMNS = (
    Column("layer", 2, left_aligned=True, style="dim", max_width=24),
    Column("time"),
    Column("share"),
    Column("bar", 4, title="", left_aligned=True, style="cyan"),
    Column("source", 1, left_aligned=True, max_width=LONGEST),
)
BAR = 10


def view(lines: Iterable[LineTime], top: int, width: int) -> RenderableType:
    """Return a table of the `top` lines; a line that several layers share is one row."""
    by_position = sorted(lines, key=lambda line: (line.file, line.line))
    groups = [
        list(group)
        for _, group in itertools.groupby(by_position, lambda line: (line.file, line.line))
    ]
    groups = [group for group in groups if _share(group) >= SMALLEST]
    groups.sort(key=_share, reverse=True)
    if not groups:
        return Text("no line of Python's takes 0.1 % of the step", style="dim")
    table: Table = fitted_table("line of Python", list(map(_line, groups[:top])), COLUMNS, width)
    return table


def _line(group: list[LineTime]) -> Line:
    first, share = group[0], _share(group)
    layers = {line.layer for line in group}
    cells = {
        "layer": first.layer if len(layers) == 1 else f"{len(layers)} layers",
        "time": units.time(sum(line.time for line in group), 3),
        "share": f"{100 * share:.1f} %",
        "bar": bar(share, BAR),
        "source": first.source[: LONGEST - 1] + "…"
        if len(first.source) > LONGEST
        else first.source,
    }
    return Line(0, f"{PurePath(first.file).name}:{first.line}", cells)


def _share(group: list[LineTime]) -> float:
    return sum(line.share for line in group)
