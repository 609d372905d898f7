"""The console's sections, sheets, lines, findings and warnings as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.console.fitted_table import Column, Line
from torchgauge.report.content import sections
from torchgauge.report.content.section import Section
from torchgauge.report.content.sheet import Cell, Sheet
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    markdown,
    omitted,
    table,
)

TOP = 10
LONGEST = 160  # characters of a name: stacks and kernels differ late in theirs
SIGNS = {"serious": "✗", "warning": "⚠", "info": "·"}


def section_blocks(section: Section) -> list[Markdown]:
    """Return a section's rows as a table below its title."""
    rows = []
    for row in section.rows:
        share = units.percent(row.share) if row.share else ""
        note = ", ".join(filter(None, (share, row.note)))
        rows.append((row.label, markdown("**{}**", row.value), cut(note)))
    return [_title(section.title, section.how), table(("", "figure:", ""), rows)]


def sheet_blocks(sheet: Sheet, top: int = TOP) -> list[Markdown]:
    """Return the first rows of a sheet without its drawings, and its notes."""
    figure_indices = [index for index, name in enumerate(sheet.names) if name]
    rows = []
    for index, (name, *cells) in enumerate(sheet.rows[:top]):
        label = _name(name, recorded=sheet.recorded)
        first = markdown("**{}**", label) if index in sheet.strong else label
        rows.append((first, *(str(cells[figure_index]) for figure_index in figure_indices)))
    names = (sheet.first, *(f"{sheet.names[figure_index]}:" for figure_index in figure_indices))
    omitted_note = omitted(max(sheet.total_rows, len(sheet.rows)), len(rows))
    notes = [cut(note) for note in sheet.notes]
    return [_title(sheet.title, sheet.how), table(names, rows), *omitted_note, *notes]


def _name(name: Cell, *, recorded: bool) -> Markdown:
    return code(str(name), LONGEST) if recorded else cut(str(name))


def line_blocks(
    title: str,
    how: str,
    lines: Sequence[Line],
    columns: Sequence[Column],
    *,
    first: str = "",
    recorded: bool = True,
) -> list[Markdown]:
    """Return lines with the columns of which any line has a cell, without drawings.

    With `recorded`, their names come from the file and are shown as code.
    """
    used_columns = [
        column
        for column in columns
        if column.title != "" and any(column.name in line.cells for line in lines)
    ]
    rows = []
    for line in lines:
        cells = (cut(line.cells.get(column.name, "")) for column in used_columns)
        rows.append((_name(line.name, recorded=recorded), *cells))
    names = (
        first,
        *(column.name if column.left_aligned else f"{column.name}:" for column in used_columns),
    )
    return [_title(title, how), table(names, rows)]


def finding_blocks(findings: Iterable[Finding]) -> list[Markdown]:
    """Return what stands out, each with evidence and what to try."""
    entries = [
        markdown(
            "{} **{}**<br>{} {}",
            SIGNS[finding.severity],
            *map(cut, (finding.title, finding.evidence, finding.remedy)),
        )
        for finding in findings
    ]
    return [items(entries)] if entries else []


def warning_blocks(warnings: Iterable[MeasurementWarning]) -> list[Markdown]:
    """Return warnings; probes that failed have a sign of their own."""
    entries = [
        markdown(
            "{} {}{} {}",
            "✗" if warning.failed else "⚠",
            markdown("{}: ", warning.probe) if warning.probe else "",
            sections.warning_text(warning),
            code(warning.id),
        )
        for warning in warnings
    ]
    return [items(entries)] if entries else []


def _title(title: str, how: str) -> Markdown:
    return markdown("**{}**{}", title, markdown(" ({})", how) if how else "")
