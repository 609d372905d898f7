"""A record as one line for logs, lists and the interpreter: what it is and its headline figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchgauge import units
from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.content.document import (
    Block,
    Document,
    Facts,
    Findings,
    Items,
    Note,
    Row,
    Table,
    Tree,
    Warnings,
)
from torchgauge.report.content.section import Section
from torchgauge.visible import one_line

LONGEST, LONGEST_NAME, LONGEST_CLAUSE = 120, 40, 60
END = ", …>"


def render(record: Record) -> str:
    """Return `<Profile Net: median 10.00 ms, peak 1.000 kB, …>`, at most 120 characters."""
    kind, document = type(record).__name__, kinds.document(record)
    title = one_line(", ".join(document.names) or document.title)
    title = _cut(title, LONGEST_NAME)
    head = title if title.startswith(kind) else f"{kind} {title}".strip()
    return line(head, _clauses(document))


def line(head: str, clauses: Iterable[str]) -> str:
    """Return the head with as many of the clauses as there is room for."""
    text, separator = f"<{head}", ": "
    for clause in filter(None, map(one_line, clauses)):
        text_of_clause = _cut(clause.rstrip("."), LONGEST_CLAUSE)
        if len(text) + len(separator) + len(text_of_clause) + len(END) > LONGEST:
            return text + END
        text, separator = f"{text}{separator}{text_of_clause}", ", "
    return f"{text}>"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _clauses(document: Document) -> Iterator[str]:
    """Yield what came out: the first figure of each section, or all of a single one."""
    yield document.headline
    yield document.line
    sections = [block for block in document.blocks if isinstance(block, Section)]
    for section in sections:
        for row in section.rows if len(sections) == 1 else section.short.rows[:1]:
            yield f"{row.label} {row.value}"
    if not sections:
        for block in document.blocks:
            yield from _texts(block)
        facts = () if document.facts is None else document.facts.pairs
        yield from (f"{label} {text}" for label, text in facts)


def _texts(block: Block) -> Iterator[str]:
    """Yield what a block says, in clauses."""
    if isinstance(block, Facts):
        yield from (f"{label} {text}" for label, text in block.pairs)
    elif isinstance(block, Items):
        yield from (str(text) for _, text in block.entries)
    elif isinstance(block, Note):
        yield block.text
    elif isinstance(block, Findings):
        yield from [block.title] * (block.title != Findings.title)
        yield from (finding.title for finding in block.findings)
    elif isinstance(block, Warnings):
        yield from (f"{warning.id}: {warning.message}" for warning in block.warnings)
    elif isinstance(block, Tree):
        root = block.tree.root
        yield f"{root.name} {units.time(root.time, 3)}"
        yield f"{len(block.tree.rows):,} rows"
    elif isinstance(block, Table):
        yield from (text for row in block.rows if (text := _row(block, row)))


def _row(table: Table, row: Row) -> str:
    """Return a row's change, or its first figure."""
    columns = [column for column in table.columns if not column.drawn and column.text(row)]
    chosen = next((column for column in columns if column.key == "change"), None)
    column = chosen or next(iter(columns), None)
    return "" if column is None else f"{row.name} {column.text(row)}"
