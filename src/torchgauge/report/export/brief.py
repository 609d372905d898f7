"""A record in at most 2,000 bytes of text, for scripts and language models.

What stands out comes first, then the figures in the document's order; the first line of each part
has room before others. A title says in brackets how the figures below it are known, where that is
not what the second line says; an interval stands beside its figure. Names from the record are in
backquotes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from torchgauge import units
from torchgauge.records.record import Record
from torchgauge.records.timeline.quantity import single_layers
from torchgauge.report import kinds
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import (
    HEADING,
    VERDICT,
    evidence_text,
    findings_of,
    has_findings,
)
from torchgauge.report.content.section import Section
from torchgauge.report.content.sections import warning_text
from torchgauge.visible import one_line, printable

MAX_BYTES = 2000
MAX_ROWS = 5  # of a table or a tree
MAX_COLUMNS = 5
MAX_FINDINGS = MAX_WARNINGS = 3
LONGEST, LONGEST_NAME, LONGEST_WARNING, LONGEST_FINDING = 160, 80, 100, 350
CERTAINTY = ("how", "95 %")  # columns that are never left out
SPREAD = "± "  # begins the key of a column with the interval of another
OMITTED = "… lines left out: {}; all of them: torchgauge report FILE"


class Group(NamedTuple):
    """Lines below a title.

    Those of rank 0 have room first, then the first line of every group, then the others by rank.
    """

    title: str
    lines: list[str]
    rank: int = 3


def render(record: Record) -> str:
    """Return the text; what there is no room for is counted in its last line."""
    document = kinds.document(record)
    blocks = [*document.conclusion, *document.blocks]
    verdict = [block for block in blocks if getattr(block, "title", "") == VERDICT]
    groups = [_head(record, document), *map(_verdict, verdict), *_findings(record, document)]
    for block in blocks:
        if isinstance(block, doc.Findings) or getattr(block, "title", "") in (HEADING, VERDICT):
            continue
        groups += _GROUPS[type(block)](block)
    return printable("\n".join(_fitting(groups))) + "\n"


def _fitting(groups: Iterable[Group]) -> Iterator[str]:
    """Yield the lines for which there is room, each title with the first of its lines."""
    room = MAX_BYTES - len(OMITTED.encode()) - 8
    groups = list(groups)
    ranked = [
        (0 if group.rank == 0 else 1 if number == 0 else 2, group.rank, index, line)
        for index, group in enumerate(groups)
        for number, line in enumerate(group.lines)
    ]
    fitting_lines: list[list[str]] = [[] for _ in groups]
    for _, _, index, line in sorted(ranked, key=lambda entry: entry[:3]):
        title = "" if fitting_lines[index] else groups[index].title
        text = f"{title}\n{line}" if title else line
        size = len(printable(text).encode()) + 1  # escaping may lengthen it
        if size <= room:
            room -= size
            fitting_lines[index].append(text)
    yield from itertools.chain.from_iterable(fitting_lines)
    if omitted_count := len(ranked) - sum(map(len, fitting_lines)):
        yield OMITTED.format(omitted_count)


def _head(record: Record, document: doc.Document) -> Group:
    names = " → ".join(map(code, document.names)) or cut(document.title)
    clauses = filter(None, (document.how, document.headline, document.line))
    facts = [] if document.facts is None else list(_pairs(document.facts))
    title = f"# {type(record).__name__} {names}".strip()
    default = f"Figures without a kind in brackets are {kinds.default_how(record)}."
    return Group("", [title, default, *map(cut, clauses), *facts], rank=0)


def _verdict(items: Any) -> Group:
    lines = [cut(f"{sign} {text}", LONGEST_FINDING) for sign, text in items.entries]
    return Group(f"## {VERDICT}", lines, rank=0)


def _findings(record: Record, document: doc.Document) -> Iterator[Group]:
    """Yield what stands out, each with its evidence and what to do."""
    blocks = [block for block in document.blocks if isinstance(block, doc.Findings)]
    findings = [finding for block in blocks for finding in block.findings]
    if not blocks and has_findings(record):
        findings = [*findings_of(record)]
    lines = []
    for finding in findings[:MAX_FINDINGS]:
        layer = f" {code(finding.path)}" if finding.path else ""
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        sentence = f"{finding.severity} {finding.id}{layer}: {finding.title.rstrip('.')}."
        lines.append(cut(f"{sentence} {evidence_text(finding)}{remedy}", LONGEST_FINDING))
    if findings:
        yield Group(f"## Findings ({len(findings)})", lines, rank=1)


def _section(section: Section) -> Iterator[Group]:
    lines = [
        cut(f"{row.label}: {row.value}{_how(row.how)}{f', {row.note}' * bool(row.note)}")
        for row in section.short.rows
    ]
    yield Group(_title(section.title, section.how), lines)


def _table(table: doc.Table) -> Iterator[Group]:
    columns = _columns(table)
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
    yield Group(_title(table.title or table.first or "Figures", table.how), lines)


def _columns(table: doc.Table) -> list[doc.Column]:
    """Return the columns left out last on a narrow terminal, with their kinds and intervals."""
    columns = [column for column in table.used_columns if not column.drawn]
    figures = [column for column in columns if not column.key.startswith((*CERTAINTY, SPREAD))]
    figures = sorted(figures, key=lambda column: column.priority or 0)[:MAX_COLUMNS]
    chosen_keys = {*CERTAINTY, *(column.key for column in figures)}
    return [column for column in columns if column.key.removeprefix(SPREAD) in chosen_keys]


def _tree(tree: doc.Tree) -> Iterator[Group]:
    """Yield the layers whose own operators take most time."""
    times: Counter[tuple[str, str]] = Counter()  # a layer may be called in several phases
    root = tree.tree.root
    for layers in single_layers(root):
        row = layers.nodes[0].row
        times[row.path or row.name, row.type] += layers.own(layers.clock) or 0.0  # type: ignore[assignment]
    lines = []
    for (name, type_name), own in (+times).most_common(MAX_ROWS):
        share = f", {units.percent(own / root.time)} of the step" if root.time else ""
        kind = f" ({code(type_name)})" if type_name else ""
        lines.append(f"{code(name)}{kind}: {units.time(own, 3)}{share}")
    yield Group(_title("Layers by their own time in a step", tree.tree.how), lines, rank=2)


def _pairs(facts: doc.Facts) -> Iterator[str]:
    for label, value in facts.pairs:
        text, detail = value if isinstance(value, doc.Detailed) else (value, "")
        name = code(text) if facts.recorded and text else text
        yield cut(f"{label}: {', '.join(filter(None, (name, detail.strip(' ,'))))}")


def _facts(facts: doc.Facts) -> Iterator[Group]:
    yield Group(_title(facts.title, facts.how), list(_pairs(facts)))


def _items(items: doc.Items) -> Iterator[Group]:
    labels = items.labels or [""] * len(items.entries)
    lines = [
        cut(f"{sign} {label} {code(str(text)) if items.recorded else text}")
        for label, (sign, text) in zip(labels, items.entries[:MAX_ROWS], strict=False)
    ]
    yield Group(_title(items.title), lines)


def _warnings(warnings: doc.Warnings) -> Iterator[Group]:
    lines = [
        cut(
            f"{'failed' if warning.failed else 'warning'} {warning.id}: {warning_text(warning)}",
            LONGEST_WARNING,
        )
        for warning in sorted(warnings.warnings, key=lambda warning: not warning.failed)[
            :MAX_WARNINGS
        ]
    ]
    yield Group(f"## {warnings.title} ({len(warnings.warnings)})", lines, rank=2)


def _heading(heading: doc.Heading) -> Iterator[Group]:
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
    doc.Tree: _tree,
    doc.Warnings: _warnings,
    Section: _section,
    doc.Table: _table,
    doc.Facts: _facts,
    doc.Items: _items,
    doc.Heading: _heading,
    doc.Note: lambda note: [Group("", [cut(note.text)])],
    doc.Listing: lambda listing: [
        Group("", [f"    {cut(line)}" for line in listing.lines.splitlines()[:MAX_ROWS]])
    ],
}
