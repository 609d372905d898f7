"""A document as Markdown: its blocks one below the other, without drawings.

`Markdown` is text with our own markup; every other text is escaped on its way into one. A report is
made of `Markdown` alone, so that no text can be left unescaped.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, LiteralString

from torchgauge import units
from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import evidence_text
from torchgauge.report.content.section import Row as Figure
from torchgauge.report.content.section import Section
from torchgauge.report.content.sections import warning_text
from torchgauge.report.tables import tree_tables
from torchgauge.visible import one_line, printable, visible_lines

MAX_BYTES = 60_000  # GitHub refuses a comment of 65,536 characters
MAX_LIST_BYTES = 9_000  # so that no list or table takes the room of others
LONGEST_NAME = 80  # characters of a name
LONGEST_CELL = 300
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")


class Markdown(str):
    """A text in which only this program's markup is markup."""

    __slots__ = ()


def markdown(template: LiteralString, *parts: str) -> Markdown:
    """Return the template filled with the parts; those that are not Markdown are escaped."""
    return Markdown(template.format(*map(text, parts)))


def text(plain_text: str) -> Markdown:
    """Return the text so that nothing in it is markup."""
    if isinstance(plain_text, Markdown):
        return plain_text
    return Markdown(_SPECIAL.sub(r"\\\1", one_line(plain_text)).replace("&", "&amp;"))


def code(name: str, longest: int = LONGEST_NAME) -> Markdown:
    """Return a name as code, cut in the middle where it is long."""
    name = one_line(name)
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 + 1 :]}"
    if "\\|" in name:  # in code nothing can be written so that it does not end a table's cell
        return Markdown(f"<code>{text(name)}</code>")
    # A fence must be longer than any of the name's own, and a cell ends at a bar even in code.
    fence = _fence(name, 1)
    space = " " if name.startswith("`") or name.endswith("`") else ""
    return Markdown(fence + space + (name.replace("|", "\\|") or " ") + space + fence)


def listing(lines: str, language: LiteralString) -> Markdown:
    """Return lines of a language as a block of code, which nothing in them ends."""
    if not lines:
        return Markdown()
    lines = visible_lines(lines)
    fence = _fence(lines, 3)
    return Markdown(f"{fence}{language}\n{lines}\n{fence}")


def _fence(lines: str, min_length: int) -> str:
    """Return as many backticks as no run of them in the lines has."""
    return "`" * max(min_length, 1 + max(map(len, re.findall("`+", lines)), default=0))


def cut(plain_text: str, longest: int = LONGEST_CELL) -> Markdown:
    """Return the text, cut where it is absurdly long."""
    return text(plain_text if len(plain_text) <= longest else plain_text[: longest - 1] + "…")


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """Return a table; a name that ends in ":" marks a column of numbers."""
    lines = [[name.removesuffix(":") for name in names]]
    lines.append([Markdown("--:" if name.endswith(":") else "---") for name in names])
    lines += map(list, rows)
    return join("\n", (Markdown(f"| {join(' | ', line)} |") for line in lines))


def items(lines: Iterable[str]) -> Markdown:
    """Return a list, an item a line."""
    return join("\n", (markdown("- {}", line) for line in lines))


def join(separator: LiteralString, parts: Iterable[str]) -> Markdown:
    """Return the parts with the separator between them; those not Markdown are escaped."""
    return Markdown(separator.join(map(text, parts)))


def fitting_count(lines: Sequence[str], max_count: int) -> int:
    """Return how many of the lines are shown: `max_count`, or those for which there is room."""
    sizes = itertools.accumulate(len(line.encode()) for line in lines[:max_count])
    return sum(size <= MAX_LIST_BYTES for size in sizes)


def omitted(total: int, shown_count: int) -> list[Markdown]:
    """Return a note on how many of `total` are left out, if any."""
    return [markdown("… {} others", f"{total - shown_count:,}")] if total > shown_count else []


def document(blocks: Sequence[Markdown], end: Sequence[Markdown]) -> str:
    """Return the blocks as a report, the last before its end left out where it is too long."""
    kept_blocks = list(blocks)
    while kept_blocks and len("\n\n".join([*kept_blocks, *end]).encode()) > MAX_BYTES - 100:
        kept_blocks.pop()
    if len(kept_blocks) < len(blocks):
        omitted_count = str(len(blocks) - len(kept_blocks))
        kept_blocks.append(markdown("… {} sections more are in the record.", omitted_count))
    return printable("\n\n".join(block for block in [*kept_blocks, *end] if block)) + "\n"


TOP = 10  # rows of a table whose columns say which count most
MAX_COLUMNS = 8
MAX_ROWS = 100
MAX_ENTRIES = 25
LONGEST_SENTENCE = 600
LONGEST = 160  # characters of a name: stacks and kernels differ late in theirs
MARKS: dict[doc.Tone, str] = {"good": "🟢", "bad": "🔴", "doubtful": "🟡", "faint": "⚪"}
INDENT = "&emsp;"
FOLD = "<details><summary>Operators and how they were measured</summary>"
UNFOLD = "</details>"
SIGNS = {"serious": "✗", "warning": "⚠", "info": "·"}


def document_text(shown_document: doc.Document) -> str:
    """Return the Markdown; where it is too long, what stands before the warnings is cut."""
    warnings = [block for block in shown_document.blocks if isinstance(block, doc.Warnings)]
    figures = [block for block in shown_document.blocks if not isinstance(block, doc.Warnings)]
    blocks = [*shown_document.conclusion, *figures]
    return document([*_head(shown_document), *_parts(blocks)], list(_parts(warnings)))


def _head(shown_document: doc.Document) -> Iterator[Markdown]:
    names = join(" → ", map(code, shown_document.names))
    yield markdown(
        "### {}{}{}",
        names or cut(shown_document.title),
        f", {shown_document.how}" * bool(shown_document.how),
        cut(f": {shown_document.headline}" * bool(shown_document.headline)),
    )
    yield cut(shown_document.line)
    if shown_document.facts is not None:
        pairs = _pairs(shown_document.facts)
        shown_pairs = pairs[: fitting_count(pairs, MAX_ENTRIES)]
        yield join("<br>", [*shown_pairs, *omitted(len(pairs), len(shown_pairs))])


def _parts(blocks: Iterable[doc.Block]) -> Iterator[Markdown]:
    """Yield blocks as Markdown; sections in a row are one table, notes one paragraph."""
    for kind, group in itertools.groupby(blocks, type):
        neighbours: list[Any] = list(group)
        if kind is Section:
            yield from _sections(neighbours)
        elif kind is doc.Note:
            yield join("<br>", [text(note.text) for note in neighbours])
        else:
            yield from itertools.chain.from_iterable(map(_PARTS[kind], neighbours))


def _pairs(facts: doc.Facts) -> list[Markdown]:
    pairs = []
    for label, value in facts.pairs:
        detailed = value if isinstance(value, doc.Detailed) else doc.Detailed(value, "")
        name = code(detailed.text) if facts.recorded else cut(detailed.text)
        detail = markdown(" {}", cut(detailed.detail.strip())) if detailed.detail else ""
        pairs.append(markdown("{}: {}{}", cut(label), name, detail))
    return pairs


def _facts(facts: doc.Facts) -> Iterator[Markdown]:
    yield from _title(facts.title, facts.how)
    yield from _list(_pairs(facts))


def _list(entries: Sequence[Markdown], omitted_count: int = 0) -> Iterator[Markdown]:
    """Yield the entries for which there is room, and how many others there are."""
    shown_entries = entries[: fitting_count(entries, MAX_ENTRIES)]
    yield items(shown_entries)
    yield from omitted(len(entries) + omitted_count, len(shown_entries))


def _sections(sections: Sequence[Section]) -> Iterator[Markdown]:
    """Yield a section's rows as a table below its title; of several as one table."""
    if len(sections) > 1:
        rows = [
            (f"{section.title}, {row.label}", *_figure(row), row.how or section.how)
            for section in sections
            for row in section.short.rows
        ]
        yield table(("", "figure:", "", "how"), rows)
        return
    section = sections[0].short
    yield from _title(section.title, section.how)
    yield table(("", "figure:", ""), [(row.label, *_figure(row)) for row in section.rows])
    yield from map(cut, section.notes)


def _figure(row: Figure) -> tuple[Markdown, Markdown]:
    share = units.percent(row.share) if row.share else ""
    note = ", ".join(filter(None, (share, row.note)))
    return markdown("**{}**", row.value), cut(note)


def _table(shown_table: doc.Table) -> Iterator[Markdown]:
    """Yield rows of a table without its drawings, and its notes; names are indented by level."""
    columns = _columns(shown_table)
    judged = any(column.judging for column in columns)
    first_level = min((row.level for row in shown_table.rows), default=0)
    lines = []
    for row in _rows(shown_table):
        name = str(row.name)
        recorded = shown_table.recorded and not row.summary
        label = code(name, LONGEST) if recorded else cut(name)
        label = markdown("**{}**", label) if row.tone == "strong" else label
        if row.tone in ("good", "bad") and not judged:
            label = markdown("{} {}", MARKS[row.tone], label)
        label = Markdown(INDENT * (row.level - first_level) + label)
        lines.append((label, *(_cell(column, row) for column in columns)))
    lines = lines[: fitting_count(["".join(line) for line in lines], MAX_ROWS)]
    headers = (column.header + ":" * (not column.left_aligned) for column in columns)
    yield from _title(shown_table.title, shown_table.how)
    if lines:
        yield table((shown_table.first, *headers), lines)
    yield from omitted(shown_table.total, len(lines))
    notes = [cut(note, LONGEST_SENTENCE) for note in shown_table.notes]
    yield from notes if len(notes) < 2 else _list(notes)


def _columns(shown_table: doc.Table) -> list[doc.Column]:
    """Return the columns without drawings, those left out first on a narrow terminal last."""
    columns = [column for column in shown_table.used_columns if not column.drawn]
    by_priority = sorted(columns, key=lambda column: column.priority or 0)[:MAX_COLUMNS]
    return [column for column in columns if column in by_priority]


def _rows(shown_table: doc.Table) -> Sequence[doc.Row]:
    """Return the first rows; of a ranked table those of the largest values, in their order."""
    rows = shown_table.rows[: shown_table.top]
    if not shown_table.ranked_by:
        return rows
    values = [float(row.cells.get(shown_table.ranked_by) or 0) for row in rows]  # type: ignore[arg-type]
    largest = sorted(range(len(rows)), key=lambda index: -values[index])[:TOP]
    return [rows[index] for index in sorted(largest)]


def _cell(column: doc.Column, row: doc.Row) -> Markdown:
    text = cut(column.text(row).strip())
    if column.judging:
        return markdown("{} {}", MARKS.get(row.tone, ""), text)
    if not text:
        return text
    if column.recorded:
        return code(column.text(row))
    return markdown("**{}**", text) if column.tone == "strong" else text


def _tree(tree: doc.Tree) -> Iterator[Markdown]:
    """Yield the layers, and folded what is behind them; a tree without layers is shown whole."""
    blocks = tree_tables.blocks(tree.tree, tree.options)
    shown_count = 1 if any(row.kind == "layer" for row in tree.tree.rows) else len(blocks)
    yield from _parts(blocks[:shown_count])
    if folded := list(filter(None, _parts(blocks[shown_count:]))):
        yield join("\n\n", [Markdown(FOLD), *folded, Markdown(UNFOLD)])


def _items(shown_items: doc.Items) -> Iterator[Markdown]:
    yield from _title(shown_items.title)
    labels = [f"{label}: " for label in shown_items.labels] or [""] * len(shown_items.entries)
    signs = (sign if sign in ("", "·") else f"{sign} " for sign, _ in shown_items.entries)
    entries = [
        markdown(
            "{}{}{}",
            sign.removeprefix("·"),
            label,
            code(str(entry)) if shown_items.recorded else cut(str(entry)),
        )
        for sign, label, (_, entry) in zip(signs, labels, shown_items.entries, strict=False)
    ]
    yield from _list(entries, shown_items.omitted_count)


def _findings(findings: doc.Findings) -> Iterator[Markdown]:
    """Yield what stands out, each with evidence and what to try."""
    entries = [
        markdown(
            "{} **{}**<br>{} {}",
            SIGNS[finding.severity],
            *map(cut, (finding.title, evidence_text(finding), finding.remedy)),
        )
        for finding in findings.findings
    ]
    yield from _title(findings.title)
    yield from _list(entries)


def _warnings(warnings: doc.Warnings) -> Iterator[Markdown]:
    """Yield warnings; probes that failed have a sign of their own."""
    entries = [
        markdown(
            "{} {}{} {}",
            "✗" if warning.failed else "⚠",
            markdown("{}: ", warning.probe) if warning.probe else "",
            cut(warning_text(warning), LONGEST_SENTENCE),
            code(warning.id),
        )
        for warning in warnings.warnings
    ]
    yield from _title(warnings.title)
    yield from _list(entries)


def _heading(heading: doc.Heading) -> Iterator[Markdown]:
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
    doc.Facts: _facts,
    doc.Findings: _findings,
    doc.Heading: _heading,
    doc.Items: _items,
    doc.Listing: lambda lines: [listing(lines.lines, lines.language)],
    doc.Table: _table,
    doc.Tree: _tree,
    doc.Warnings: _warnings,
}


def render(record: Record) -> str:
    """Return the Markdown, with tables as GitHub and others know them."""
    return document_text(kinds.document(record))
