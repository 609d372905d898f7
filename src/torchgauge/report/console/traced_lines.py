"""Traced functions: for each its lines with most time, in the order of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.records.timeline import line_table
from torchgauge.records.timeline.traced_lines import TracedFunction, TracedLine
from torchgauge.report.console.fitted_table import Column, Line, fitted_table
from torchgauge.report.console.text import Text
from torchgauge.report.markdown import markdown_text
from torchgauge.report.markdown.markdown_text import Markdown
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_tables import Column as PageColumn

FUNCTIONS, LINES = 5, 12
LONGEST, FIGURES_WIDTH = 60, 45  # columns of a line's text at most, and of the figures beside it
COLUMNS = (Column("hits", 2), Column("time"), Column("share"), Column("allocated"))
PAGE = (
    PageColumn("function", "function", "text"),
    PageColumn("place", "line", "text"),
    PageColumn("source", "source", "text"),
    PageColumn("hits", "hits", "count"),
    PageColumn("time", "time", "time"),
    PageColumn("share", "share of the function", "share"),
    PageColumn("allocated", "allocated", "bytes"),
)
NONE = "no function of this name, or none of the script's own, ran"


def view(functions: Sequence[TracedFunction], width: int) -> RenderableType:
    """Return a table for each of the functions with most time."""
    if not functions:
        return Text(f"Lines: {NONE}", style="dim")
    blocks: list[RenderableType] = []
    for function in functions[:FUNCTIONS]:
        blocks += [Text(""), Text(title(function), style="bold")]
        room = max(min(LONGEST, width - FIGURES_WIDTH), 0)
        columns = (*COLUMNS, Column("source", 1, left_aligned=True, max_width=room))
        lines = [
            Line(0, str(line.line), cells(line, function, room)) for line in top_lines(function)
        ]
        blocks.append(fitted_table("line", lines, columns, width))
        blocks += _omitted_note(len(function.lines) - len(lines), "lines")
    return Group(*blocks[1:], *_omitted_note(len(functions) - FUNCTIONS, "functions"))


def _omitted_note(number: int, noun: str) -> list[Text]:
    return [Text(f"… {number:,} other {noun}", style="dim")] if number > 0 else []


def title(function: TracedFunction) -> str:
    """Return a function's name and place, its time, calls and allocated memory."""
    calls = f"{function.calls:,} call{'' if function.calls == 1 else 's'}"
    memory = (
        "" if function.allocated is None else f", {units.size(function.allocated, 3)} allocated"
    )
    place = f"{PurePath(function.file).name}:{function.line}"
    return f"{function.name} ({place}): {units.time(function.time, 3)}, {calls}{memory}"


def top_lines(function: TracedFunction) -> list[TracedLine]:
    """Return the lines with most time and those with most memory, in source order."""
    by_time = sorted(function.lines, key=lambda line: -line.time)[:LINES]
    by_size = sorted(function.lines, key=lambda line: -(line.allocated or 0))[: LINES // 4]
    line_numbers = {line.line for line in (*by_time, *(line for line in by_size if line.allocated))}
    return [line for line in function.lines if line.line in line_numbers]


def cells(line: TracedLine, function: TracedFunction, longest: int = LONGEST) -> dict[str, str]:
    """Return a line's figures as texts by column; its own text is cut where it is longer."""
    figures = {
        "hits": f"{line.hits:,}",
        "time": units.time(line.time, 3),
        "share": f"{100 * line.time / function.time:.1f} %" if function.time else "",
        "source": line.source if len(line.source) <= longest else line.source[: longest - 1] + "…",
    }
    if line.allocated is not None:
        figures["allocated"] = units.size(line.allocated, 3)
    return figures


def markdown(functions: Sequence[TracedFunction]) -> Iterator[Markdown]:
    """Return the functions with most time as Markdown."""
    for function in functions[:FUNCTIONS]:
        yield markdown_text.markdown("**{}**", title(function))
        names = [
            "hits",
            "time",
            "share",
            *(["allocated"] if function.allocated is not None else []),
        ]
        rows = []
        for line in top_lines(function):
            figures = cells(line, function)
            source = markdown_text.code(line.source) if line.source else ""
            rows.append((str(line.line), *(figures[name] for name in names), source))
        yield markdown_text.table(("line:", *(f"{name}:" for name in names), "source"), rows)
    yield from markdown_text.omitted(len(functions), FUNCTIONS)


def page(functions: Sequence[TracedFunction]) -> dict[str, Any]:
    """Return all lines as a table of the page."""
    columns = line_table.traced(functions).columns
    columns["place"] = [
        f"{file}:{line}" for file, line in zip(columns["file"], columns["line"], strict=True)
    ]
    return page_tables.table("lines of functions", PAGE, columns)
