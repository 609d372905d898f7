"""A record in at most 2,000 bytes of text, for scripts and language models.

What stands out comes first, then the layers by their own time, then the other figures in the
document's order. A title says in brackets how the figures below it are known, where that is not
what the first line says; an interval stands beside its figure. Names from the record are in
backquotes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.records.record import Record
from torchgauge.records.timeline.repeated_layers import single_layers
from torchgauge.report import kinds
from torchgauge.report.content.document import (
    Detailed,
    Document,
    Facts,
    Findings,
    Heading,
    Items,
    Listing,
    Note,
    Table,
    Tree,
    Warnings,
)
from torchgauge.report.content.findings import HEADING, evidence_text, findings_of, has_findings
from torchgauge.report.content.section import Section
from torchgauge.report.content.sections import warning_text
from torchgauge.visible import one_line, printable

MAX_BYTES = 2000
MAX_ROWS = 5  # of a table or a tree
MAX_COLUMNS = 5
MAX_FINDINGS = 3
LONGEST, LONGEST_NAME, LONGEST_FINDING = 160, 80, 420
MORE = "… {} lines more: torchgauge report FILE"


class Group(NamedTuple):
    """Lines below a title."""

    title: str
    lines: list[str]


def render(record: Record) -> str:
    """Return the text; what there is no room for is counted in its last line."""
    document = kinds.document(record)
    groups = [_head(record, document), *_findings(record, document)]
    blocks = sorted(document.blocks, key=lambda block: _ORDER.get(type(block), len(_ORDER)))
    for block in [*document.conclusion, *blocks]:
        if isinstance(block, Findings) or getattr(block, "title", "") == HEADING:
            continue
        groups += _GROUPS[type(block)](block)
    return printable("\n".join(_fitting(groups))) + "\n"


def _fitting(groups: Iterable[Group]) -> Iterator[str]:
    """Yield the lines for which there is room, a group's title with its first line."""
    room = MAX_BYTES - len(MORE.encode()) - 8
    omitted_count = 0
    for title, lines in groups:
        heading = [title] * bool(title)
        for line in lines:
            text = "\n".join([*heading, line])
            # Escaping may lengthen a line by a character for each command of a runner's in it.
            size = len(printable(text).encode()) + 1
            if size > room:
                omitted_count += 1
                continue
            room -= size
            heading = []
            yield text
    if omitted_count:
        yield MORE.format(omitted_count)


def _head(record: Record, document: Document) -> Group:
    names = " → ".join(map(code, document.names)) or cut(document.title)
    clauses = filter(None, (document.how, document.headline, document.line))
    facts = [] if document.facts is None else list(_pairs(document.facts))
    title = f"# {type(record).__name__} {names}".strip()
    default = f"figures are {kinds.default_how(record)} where nothing else is said"
    return Group("", [title, default, *map(cut, clauses), *facts])


def _findings(record: Record, document: Document) -> Iterator[Group]:
    """Yield what stands out, each with its evidence and what to do."""
    blocks = [block for block in document.blocks if isinstance(block, Findings)]
    findings = [finding for block in blocks for finding in block.findings]
    if not blocks and has_findings(record):
        findings = [*findings_of(record)]
    lines = []
    for finding in findings[:MAX_FINDINGS]:
        layer = f" {code(finding.path)}" if finding.path else ""
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        sentence = f"{finding.severity} {finding.id}{layer}: {finding.title}"
        lines.append(cut(f"{sentence} {evidence_text(finding)}{remedy}", LONGEST_FINDING))
    if findings:
        yield Group(f"## Findings ({len(findings)})", lines)


def _section(section: Section) -> Iterator[Group]:
    lines = [
        cut(f"{row.label}: {row.value}{_how(row.how)}{f', {row.note}' * bool(row.note)}")
        for row in section.short.rows
    ]
    yield Group(_title(section.title, section.how), lines)


def _table(table: Table) -> Iterator[Group]:
    columns = [column for column in table.used_columns if not column.drawn]
    columns = sorted(columns, key=lambda column: column.priority or 0)[:MAX_COLUMNS]
    lines = []
    for row in table.rows[:MAX_ROWS]:
        name = code(str(row.name)) if table.recorded and not row.summary else cut(str(row.name))
        cells = [
            cut(f"{column.header} {code(text) if column.recorded else text}", LONGEST_NAME)
            for column in columns
            if (text := column.text(row).strip())
        ]
        if cells:
            lines.append(f"{name}: {', '.join(cells)}")
    judged = any(column.key == "how" for column in table.columns)
    yield Group(_title(table.title or table.first), lines)


def _tree(tree: Tree) -> Iterator[Group]:
    """Yield the layers whose own operators take most time."""
    times: Counter[tuple[str, str]] = Counter()  # a layer may be called in several phases
    root = tree.tree.root
    for layers in single_layers(root):
        row = layers.nodes[0].row
        times[row.path or row.name, row.type] += layers.own(layers.clock) or 0.0  # type: ignore[assignment]
    lines = []
    for (name, type_name), own in times.most_common(MAX_ROWS):
        share = f", {units.percent(own / root.time)} of the step" if root.time else ""
        lines.append(f"{code(name)} ({code(type_name)}): {units.time(own, 3)}{share}")
    yield Group(_title("Layers by their own time in a step", tree.tree.how), lines)


def _pairs(facts: Facts) -> Iterator[str]:
    for label, value in facts.pairs:
        text, detail = value if isinstance(value, Detailed) else (value, "")
        name = code(text) if facts.recorded else text
        yield cut(f"{label}: {name} {detail.strip()}")


def _facts(facts: Facts) -> Iterator[Group]:
    yield Group(_title(facts.title, facts.how), list(_pairs(facts)))


def _items(items: Items) -> Iterator[Group]:
    labels = items.labels or [""] * len(items.entries)
    lines = [
        cut(f"{sign} {label} {code(str(text)) if items.recorded else text}")
        for label, (sign, text) in zip(labels, items.entries[:MAX_ROWS], strict=False)
    ]
    yield Group(_title(items.title), lines)


def _warnings(warnings: Warnings) -> Iterator[Group]:
    lines = [
        cut(f"{'failed' if warning.failed else 'warning'} {warning.id}: {warning_text(warning)}")
        for warning in warnings.warnings
    ]
    yield Group(_title(warnings.title), lines)


def _heading(heading: Heading) -> Iterator[Group]:
    clauses = [cut(text) for text in (heading.headline, heading.line) if text]
    yield Group("", [" ".join([_title(heading.title, heading.how), *clauses])])


def _title(title: str, how: str = "") -> str:
    return cut(f"## {title}{_how(how)}") if title else _how(how).strip()


def _how(how: str) -> str:
    return f" [{how}]" if how else ""


def cut(text: str, longest: int = LONGEST) -> str:
    """Return the text on one line, cut at its end where it is long."""
    text = one_line(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def code(name: str) -> str:
    """Return a name in backquotes, which nothing in it ends, cut in the middle."""
    name = one_line(name).replace("`", "'")
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2]}…{name[1 - LONGEST_NAME // 2 :]}"
    return f"`{name}`"


_GROUPS: dict[type, Callable[[Any], Iterable[Group]]] = {
    Tree: _tree,
    Warnings: _warnings,
    Section: _section,
    Table: _table,
    Facts: _facts,
    Items: _items,
    Heading: _heading,
    Note: lambda note: [Group("", [cut(note.text)])],
    Listing: lambda listing: [
        Group("", [cut(f"    {line}") for line in listing.lines.splitlines()[:MAX_ROWS]])
    ],
}
# Before everything else, whatever the document's order.
_ORDER = {kind: index for index, kind in enumerate((Tree, Warnings))}
