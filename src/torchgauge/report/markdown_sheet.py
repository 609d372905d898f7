"""What the console shows as sections, tables and lines, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgauge import units
from torchgauge.model.finding import Finding
from torchgauge.model.record import MeasurementWarning
from torchgauge.report import sections
from torchgauge.report.fitted_table import Column, Line
from torchgauge.report.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    markdown,
    more,
    table,
)
from torchgauge.report.section import Section
from torchgauge.report.sheet import Cell, Sheet

TOP = 10
LONGEST = 160  # characters of a name: stacks and kernels differ late in theirs
SIGNS = {"serious": "✗", "warning": "⚠", "info": "·"}


def section(found: Section) -> list[Markdown]:
    """Return a section's rows as a table below its title."""
    rows = []
    for row in found.rows:
        share = units.percent(row.share) if row.share else ""
        note = ", ".join(filter(None, (share, row.note)))
        rows.append((row.label, markdown("**{}**", row.value), cut(note)))
    return [_title(found.title, found.how), table(("", "figure:", ""), rows)]


def sheet(found: Sheet, top: int = TOP) -> list[Markdown]:
    """Return the first rows of a sheet without its drawings, and its notes."""
    kept = [at for at, name in enumerate(found.names) if name]
    rows = []
    for at, (name, *cells) in enumerate(found.rows[:top]):
        said = _name(name, recorded=found.recorded)
        first = markdown("**{}**", said) if at in found.strong else said
        rows.append((first, *(str(cells[place]) for place in kept)))
    names = (found.first, *(f"{found.names[place]}:" for place in kept))
    left = more(max(found.of, len(found.rows)), len(rows))
    notes = [cut(note) for note in found.notes]
    return [_title(found.title, found.how), table(names, rows), *left, *notes]


def _name(name: Cell, *, recorded: bool) -> Markdown:
    return code(str(name), LONGEST) if recorded else cut(str(name))


def lines(
    title: str,
    how: str,
    found: Sequence[Line],
    columns: Sequence[Column],
    *,
    first: str = "",
    recorded: bool = True,
) -> list[Markdown]:
    """Return lines with the columns of which any line has a cell, without drawings.

    Their names are the file's where `recorded`, else our own words.
    """
    kept = [
        one for one in columns if one.title != "" and any(one.name in line.cells for line in found)
    ]
    rows = []
    for line in found:
        cells = (cut(line.cells.get(one.name, "")) for one in kept)
        rows.append((_name(line.name, recorded=recorded), *cells))
    names = (first, *(one.name if one.left else f"{one.name}:" for one in kept))
    return [_title(title, how), table(names, rows)]


def findings(found: Iterable[Finding]) -> list[Markdown]:
    """Return what stands out, each with evidence and what to try."""
    told = [
        markdown(
            "{} **{}**<br>{} {}",
            SIGNS[one.severity],
            *map(cut, (one.title, one.evidence, one.remedy)),
        )
        for one in found
    ]
    return [items(told)] if told else []


def warnings(found: Iterable[MeasurementWarning]) -> list[Markdown]:
    """Return warnings, what failed with another sign."""
    told = [
        markdown(
            "{} {}{} {}",
            "✗" if one.failed else "⚠",
            markdown("{}: ", one.probe) if one.probe else "",
            sections.warning_text(one),
            code(one.id),
        )
        for one in found
    ]
    return [items(told)] if told else []


def _title(title: str, how: str) -> Markdown:
    return markdown("**{}**{}", title, markdown(" ({})", how) if how else "")
