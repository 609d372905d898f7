"""A document as Markdown: its blocks one below the other, without drawings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.content.document import (
    Block,
    Column,
    Detailed,
    Document,
    Facts,
    Findings,
    Heading,
    Items,
    Listing,
    Note,
    Row,
    Table,
    Tone,
    Tree,
    Warnings,
)
from torchgauge.report.content.section import Section
from torchgauge.report.content.sections import warning_text
from torchgauge.report.markdown.markdown_text import (
    Markdown,
    code,
    cut,
    items,
    join,
    listing,
    markdown,
    omitted,
    table,
    text,
    truncated_document,
)
from torchgauge.report.markdown.markdown_tree import layers
from torchgauge.report.tables import tree_tables

TOP = 10
MAX_ENTRIES = 25
LONGEST_WARNING = 600
LONGEST = 160  # characters of a name: stacks and kernels differ late in theirs
MARKS: dict[Tone, str] = {"good": "🟢", "bad": "🔴", "doubtful": "🟡", "faint": "⚪"}
SIGNS = {"serious": "✗", "warning": "⚠", "info": "·"}


def document_text(shown_document: Document) -> str:
    """Return the Markdown; where it is too long, what stands before the warnings is cut."""
    warnings = [block for block in shown_document.blocks if isinstance(block, Warnings)]
    blocks = [block for block in shown_document.blocks if not isinstance(block, Warnings)]
    parts = _document_parts(dataclasses.replace(shown_document, blocks=blocks))
    return truncated_document(parts, [part for block in warnings for part in block_parts(block)])


def _document_parts(shown_document: Document) -> list[Markdown]:
    names = join(" → ", map(code, shown_document.names))
    heading = markdown(
        "### {}{}{}",
        names or shown_document.title,
        f", {shown_document.how}" * bool(shown_document.how),
        f": {shown_document.headline}" * bool(shown_document.headline),
    )
    blocks = [heading, cut(shown_document.line)]
    if shown_document.facts is not None:
        blocks.append(join("<br>", _pairs(shown_document.facts)))
    for block in shown_document.blocks:
        blocks += block_parts(block)
    return blocks


def block_parts(block: Block) -> list[Markdown]:
    """Return a block as Markdown."""
    return list(_PARTS[type(block)](block))


def _pairs(facts: Facts) -> list[Markdown]:
    pairs = []
    for label, value in facts.pairs:
        detailed = value if isinstance(value, Detailed) else Detailed(value, "")
        name = code(detailed.text) if facts.recorded else cut(detailed.text)
        detail = markdown(" {}", cut(detailed.detail)) if detailed.detail else ""
        pairs.append(markdown("{}: {}{}", cut(label), name, detail))
    return pairs


def _facts(facts: Facts) -> Iterator[Markdown]:
    listed = _pairs(facts)
    yield from _title(facts.title, facts.how)
    yield items(listed[:MAX_ENTRIES])
    yield from omitted(len(listed), MAX_ENTRIES)


def section_parts(section: Section) -> Iterator[Markdown]:
    """Yield a section's rows as a table below its title."""
    rows = []
    for row in section.rows:
        share = units.percent(row.share) if row.share else ""
        note = ", ".join(filter(None, (share, row.note)))
        rows.append((row.label, markdown("**{}**", row.value), cut(note)))
    yield from _title(section.title, section.how)
    yield table(("", "figure:", ""), rows)
    yield from map(cut, section.notes)


def table_parts(shown_table: Table, top: int = TOP) -> Iterator[Markdown]:
    """Yield the first rows of a table without its drawings, and its notes."""
    columns = [column for column in shown_table.used_columns if not column.drawn]
    top = top if shown_table.top is None else shown_table.top
    judged = any(column.judging for column in columns)
    rows = []
    for row in shown_table.rows[:top]:
        name = str(row.name)
        recorded = shown_table.recorded and not row.summary
        label = code(name, LONGEST) if recorded else cut(name)
        label = markdown("**{}**", label) if row.tone == "strong" else label
        if row.tone in ("good", "bad") and not judged:
            label = markdown("{} {}", MARKS[row.tone], label)
        rows.append((label, *(_cell(column, row) for column in columns)))
    headers = (column.header + ":" * (not column.left_aligned) for column in columns)
    yield from _title(shown_table.title, shown_table.how)
    if rows:
        yield table((shown_table.first, *headers), rows)
    yield from omitted(shown_table.total, len(rows))
    notes = list(map(cut, shown_table.notes))
    yield from [items(notes)] if len(notes) > 1 else notes


def _cell(column: Column, row: Row) -> Markdown:
    text = cut(column.text(row))
    if column.judging:
        return markdown("{} {}", MARKS.get(row.tone, ""), text)
    if not text:
        return text
    if column.recorded:
        return code(column.text(row))
    return markdown("**{}**", text) if column.tone == "strong" else text


def tree_parts(tree: Tree) -> Iterator[Markdown]:
    """Yield layers where there are any, operators and kernels, those with most time first."""
    if any(row.kind == "layer" for row in tree.tree.rows):
        yield from layers(tree.tree)
    for shown_table in (
        tree_tables.operators(tree.tree, tree.options),
        tree_tables.launches(tree.tree, tree.options),
    ):
        if shown_table.rows:
            yield from _title(f"{shown_table.first.capitalize()}s by their own time", tree.tree.how)
            yield from table_parts(shown_table)


def _items(shown_items: Items) -> Iterator[Markdown]:
    yield from _title(shown_items.title)
    listed = shown_items.entries[:MAX_ENTRIES]
    labels = [f"{label}: " for label in shown_items.labels] or [""] * len(listed)
    signs = (sign if sign in ("", "·") else f"{sign} " for sign, _ in listed)
    yield items(
        markdown(
            "{}{}{}",
            sign.removeprefix("·"),
            label,
            code(str(entry)) if shown_items.recorded else cut(str(entry)),
        )
        for sign, label, (_, entry) in zip(signs, labels, listed, strict=False)
    )
    yield from omitted(len(shown_items.entries) + shown_items.omitted_count, len(listed))


def finding_parts(findings: Iterable[Finding]) -> list[Markdown]:
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


def warning_parts(warnings: Sequence[MeasurementWarning]) -> list[Markdown]:
    """Return warnings; probes that failed have a sign of their own."""
    entries = [
        markdown(
            "{} {}{} {}",
            "✗" if warning.failed else "⚠",
            markdown("{}: ", warning.probe) if warning.probe else "",
            cut(warning_text(warning), LONGEST_WARNING),
            code(warning.id),
        )
        for warning in warnings[:MAX_ENTRIES]
    ]
    return [items(entries), *omitted(len(warnings), MAX_ENTRIES)] if entries else []


def _heading(heading: Heading) -> Iterator[Markdown]:
    detail = markdown(" ({})", code(heading.detail)) if heading.detail else ""
    how = markdown(" ({})", heading.how) if heading.how else ""
    headline = f": {heading.headline}" if heading.headline else ""
    title = markdown("#### {}" if heading.tone else "**{}**", heading.title)
    yield markdown("{}{}{}{}", title, detail, how, headline)
    yield cut(heading.line)


def _title(title: str, how: str = "") -> Iterator[Markdown]:
    if title:
        yield markdown("**{}**{}", title, markdown(" ({})", cut(how)) if how else "")


_PARTS: dict[type, Callable[[Any], Iterable[Markdown]]] = {
    Facts: _facts,
    Findings: lambda block: [*_title(block.title), *finding_parts(block.findings)],
    Heading: _heading,
    Items: _items,
    Listing: lambda lines: [listing(lines.lines, lines.language)],
    Note: lambda note: [text(note.text)],
    Section: section_parts,
    Table: table_parts,
    Tree: tree_parts,
    Warnings: lambda block: [*_title(block.title), *warning_parts(block.warnings)],
}
