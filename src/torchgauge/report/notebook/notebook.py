"""A record in a notebook: its document as HTML that needs no script and styles nothing else.

Its colours are the page's own text colour, mixed, so that it reads on light and dark alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any

from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import evidence_text
from torchgauge.report.content.section import Row, Section
from torchgauge.report.content.sections import warning_text
from torchgauge.report.notebook.charts import Curve
from torchgauge.report.notebook.drawings import bar, curve, drawing
from torchgauge.report.page.markup import escaped
from torchgauge.report.tables import tree_tables

MAX_ROWS = 60  # of a table
SIGNS = {"serious": "✗", "warning": "!", "info": "·"}
SIGN_TONES: dict[str, doc.Tone] = {
    "✗": "bad",
    "▲": "bad",
    "!": "doubtful",
    "◆": "doubtful",
    "✓": "good",
    "▼": "good",
}


def render(record: Record) -> str:
    """Return the record as a fragment of HTML; every text is escaped."""
    return fragment(kinds.document(record))


def fragment(shown_document: doc.Document) -> str:
    """Return a document: its headline figures and drawings, then its blocks.

    Of several sections the first figure of each stands above, and all of them are folded; not
    below headings, which say what the figures are of.
    """
    sections = [block for block in shown_document.blocks if isinstance(block, Section)]
    headed = any(isinstance(block, doc.Heading) for block in shown_document.blocks)
    folded: list[doc.Block] = [*sections] if len(sections) > 1 and not headed else []
    facts = [shown_document.facts] if shown_document.facts is not None else []
    parts = [_header(shown_document)]
    if folded:
        parts.append(_headlines(sections))
    else:
        parts += map(_facts, facts)
    parts += map(_block, shown_document.conclusion)
    charts = "".join(map(drawing, shown_document.charts))
    parts += [f'<div class="charts">{charts}</div>'] if charts else []
    parts += [_block(block) for block in shown_document.blocks if block not in folded]
    if folded:
        figures = "".join([*map(_facts, facts), *map(_section, sections)])
        parts.append(_details("All figures", "", figures, is_open=False))
    return f'<div class="torchgauge"><style>{_style()}</style>{"".join(parts)}</div>'


@functools.cache
def _style() -> str:
    file = resources.files("torchgauge.report") / "assets" / "notebook.css"
    return " ".join(file.read_text(encoding="utf-8").split())


def _header(shown_document: doc.Document) -> str:
    title = _toned("b", shown_document.title, shown_document.tone)
    lines = [f"{title} {_faint(shown_document.how)} {escaped(shown_document.headline)}".strip()]
    lines += [_faint(shown_document.line)] * bool(shown_document.line)
    return "".join(f"<p>{line}</p>" for line in lines) if shown_document.title else ""


def _headlines(sections: Iterable[Section]) -> str:
    cards = [
        f"<div><span>{escaped(row.label)}</span><b>{escaped(row.value)}</b>"
        f"<i>{escaped(row.how or section.how)}</i></div>"
        for section in sections
        for row in section.short.rows[:1]
    ]
    return f'<div class="figures">{"".join(cards)}</div>'


def _toned(element: str, text: str, tone: doc.Tone = "") -> str:
    named = f' class="{tone}"' if tone else ""
    return f"<{element}{named}>{escaped(text)}</{element}>"


def _faint(text: str) -> str:
    return _toned("i", text, "faint") if text else ""


def _detailed(text: str | doc.Detailed) -> str:
    if isinstance(text, str):
        return escaped(text)
    return escaped(text.text) + (_toned("span", text.detail, "faint") if text.detail else "")


def _details(title: str, how: str, content: str, *, is_open: bool = True) -> str:
    """Return what can be folded below its title; without one it is there always."""
    if not title:
        return content
    summary = f"<summary><b>{escaped(title)}</b> {_faint(how)}</summary>"
    return f"<details{' open' * is_open}>{summary}{content}</details>"


def _block(block: doc.Block) -> str:
    return _BLOCKS[type(block)](block)


def _rows(rows: Iterable[Sequence[str]], kind: str = "rows") -> str:
    """Return rows of cells that are HTML already, the first of each its header."""
    lines = (
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return f'<table class="{kind}"><tbody>{"".join(lines)}</tbody></table>'


def _facts(facts: doc.Facts) -> str:
    rows = [(escaped(label), _detailed(text)) for label, text in facts.pairs if str(text)]
    return _details(facts.title, facts.how, _rows(rows))


def _section(section: Section) -> str:
    rows = [(escaped(row.label), escaped(row.value), _note_of(row)) for row in section.rows]
    return _details(section.title, section.how, _rows(rows, "section") + _notes(section.notes))


def _note_of(row: Row) -> str:
    note = _faint(" ".join(filter(None, (row.note, row.how))))
    return note if row.share is None else f"{bar(row.share)} {escaped(_percent(row.share))} {note}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _notes(notes: Iterable[str]) -> str:
    return "".join(_toned("p", note, "faint") for note in notes)


def _table(shown_table: doc.Table) -> str:
    columns = shown_table.used_columns
    rows = shown_table.rows[: min(shown_table.top or MAX_ROWS, MAX_ROWS)]
    first_level = min((row.level for row in rows), default=0)
    first = _toned("th", shown_table.first)
    head = "".join(_toned("th", column.header, _alignment(column)) for column in columns)
    lines = (
        f'<tr{_class(row.tone)}><th scope="row"{_indent(row.level - first_level)}>'
        f"{_detailed(row.name)}</th>"
        f"{''.join(_cell(column, row) for column in columns)}</tr>"
        for row in rows
    )
    omitted_count = shown_table.total - len(rows)
    omitted_name = f"other {shown_table.noun}" if shown_table.noun else "others"
    omitted = [f"… {omitted_count:,} {omitted_name}"] * (omitted_count > 0)
    content = (
        f'<div class="scrolled"><table class="grid"><thead><tr>{first}{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
    notes = _notes([*omitted, *shown_table.notes])
    return _details(shown_table.title, shown_table.how, (content if rows else "") + notes)


def _class(tone: str) -> str:
    return f' class="{tone}"' if tone else ""


def _indent(level: int) -> str:
    return f' style="padding-left:{1.4 * level:.1f}em"' if level else ""


def _alignment(column: doc.Column) -> Any:
    return "text" if column.left_aligned or column.drawn else ""


def _cell(column: doc.Column, row: doc.Row) -> str:
    value = row.cells.get(column.key)
    if isinstance(value, Curve):
        return f"<td>{curve(value)}</td>"
    if column.unit == "bar":
        return f"<td>{'' if value is None else bar(float(str(value)))}</td>"
    classes = " ".join(filter(None, (_alignment(column), column.tone)))
    return _toned("td", column.text(row).strip(), classes)  # type: ignore[arg-type]


def _tree(tree: doc.Tree) -> str:
    return "".join(map(_block, tree_tables.blocks(tree.tree, tree.options)))


def _findings(findings: doc.Findings) -> str:
    lines = [
        (
            SIGNS[finding.severity],
            f"<b>{escaped(finding.title)}</b> {escaped(evidence_text(finding))} "
            f"{_faint(finding.remedy)}",
        )
        for finding in findings.findings
    ]
    return _details(findings.title, "", _list(lines))


def _warnings(warnings: doc.Warnings) -> str:
    lines = [
        (
            "✗" if warning.failed else "!",
            f"{escaped(f'{warning.probe}: ' * bool(warning.probe) + warning_text(warning))} "
            f"{_faint(f'[{warning.id}]')}",
        )
        for warning in warnings.warnings
    ]
    return _details(warnings.title, "", _list(lines))


def _items(items: doc.Items) -> str:
    labels = [*items.labels, *[""] * (len(items.entries) - len(items.labels))]
    lines = [
        (sign, f"{_toned('b', label) + ' ' if label else ''}{_detailed(text)}")
        for label, (sign, text) in zip(labels, items.entries, strict=True)
    ]
    if items.omitted_count:
        lines.append(("…", escaped(f"{items.omitted_count:,} more")))
    return _details(items.title, "", _list(lines))


def _list(lines: Iterable[tuple[str, str]]) -> str:
    rows = (
        f"<tr><td>{_toned('span', sign, SIGN_TONES.get(sign, ''))}</td><td>{text}</td></tr>"
        for sign, text in lines
    )
    return f'<table class="list"><tbody>{"".join(rows)}</tbody></table>'


def _heading(heading: doc.Heading) -> str:
    detail = f" ({heading.detail})" * bool(heading.detail)
    title = _toned("b", heading.title + detail, heading.tone)
    below = f"<br>{_faint(heading.line)}" if heading.line else ""
    return f"<p>{title} {_faint(heading.how)} {escaped(heading.headline)}{below}</p>"


def _listing(listing: doc.Listing) -> str:
    return _toned("pre", listing.lines)


_BLOCKS: dict[type, Callable[[Any], str]] = {
    doc.Facts: _facts,
    doc.Findings: _findings,
    doc.Heading: _heading,
    doc.Items: _items,
    doc.Listing: _listing,
    doc.Note: lambda note: _toned("p", note.text, note.tone),
    Section: _section,
    doc.Table: _table,
    doc.Tree: _tree,
    doc.Warnings: _warnings,
}
