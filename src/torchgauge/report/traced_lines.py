"""Traced functions: for each its lines with most time, in the order of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from rich.console import Group, RenderableType

from torchgauge import units
from torchgauge.model import line_table
from torchgauge.model.traced_lines import TracedFunction, TracedLine
from torchgauge.report import markdown_text, page_tables
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.markdown_text import Markdown
from torchgauge.report.page_tables import Column as PageColumn
from torchgauge.report.text import Text

FUNCTIONS, LINES = 5, 12
LONGEST, BESIDE = 60, 45  # columns of a line's text at most, and of the figures beside it
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
        room = max(min(LONGEST, width - BESIDE), 0)
        columns = (*COLUMNS, Column("source", 1, left=True, most=room))
        lines = [Line(0, str(one.line), cells(one, function, room)) for one in shown(function)]
        blocks.append(fitted_table("line", lines, columns, width))
        blocks += _more(len(function.lines) - len(lines), "lines")
    return Group(*blocks[1:], *_more(len(functions) - FUNCTIONS, "functions"))


def _more(number: int, of: str) -> list[Text]:
    return [Text(f"… {number:,} other {of}", style="dim")] if number > 0 else []


def title(function: TracedFunction) -> str:
    """Say what a function is, how often it was called, how long it took."""
    calls = f"{function.calls:,} call{'' if function.calls == 1 else 's'}"
    memory = (
        "" if function.allocated is None else f", {units.size(function.allocated, 3)} allocated"
    )
    place = f"{PurePath(function.file).name}:{function.line}"
    return f"{function.name} ({place}): {units.time(function.time, 3)}, {calls}{memory}"


def shown(function: TracedFunction) -> list[TracedLine]:
    """Return the lines with most time and those with most memory, in their order."""
    by_time = sorted(function.lines, key=lambda one: -one.time)[:LINES]
    by_size = sorted(function.lines, key=lambda one: -(one.allocated or 0))[: LINES // 4]
    kept = {one.line for one in (*by_time, *(one for one in by_size if one.allocated))}
    return [one for one in function.lines if one.line in kept]


def cells(line: TracedLine, function: TracedFunction, longest: int = LONGEST) -> dict[str, str]:
    """Return a line's figures as texts by column; its own text is cut where it is longer."""
    found = {
        "hits": f"{line.hits:,}",
        "time": units.time(line.time, 3),
        "share": f"{100 * line.time / function.time:.1f} %" if function.time else "",
        "source": line.source if len(line.source) <= longest else line.source[: longest - 1] + "…",
    }
    if line.allocated is not None:
        found["allocated"] = units.size(line.allocated, 3)
    return found


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
        for one in shown(function):
            found = cells(one, function)
            source = markdown_text.code(one.source) if one.source else ""
            rows.append((str(one.line), *(found[name] for name in names), source))
        yield markdown_text.table(("line:", *(f"{name}:" for name in names), "source"), rows)
    yield from markdown_text.more(len(functions), FUNCTIONS)


def page(functions: Sequence[TracedFunction]) -> dict[str, Any]:
    """Return all lines as a table of the page."""
    found = line_table.traced(functions).columns
    found["place"] = [
        f"{file}:{line}" for file, line in zip(found["file"], found["line"], strict=True)
    ]
    return page_tables.table("lines of functions", PAGE, found)
