"""A record in a notebook: its document as HTML that needs no script and styles nothing else.

Its colours are the page's own text colour, mixed, so that it reads on light and dark alike.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any

from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import evidence_text
from torchgauge.report.content.section import Row, Section
from torchgauge.report.content.sections import warning_text
from torchgauge.report.notebook.charts import Chart, Curve
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


WIDTH, HEIGHT = 320, 72
BAR_WIDTH, BAR_HEIGHT = 80, 10
CURVE_WIDTH, CURVE_HEIGHT = 160, 20
GAP = 0.15  # between bars, as a share of each
MAX_LABELS = 8
MAX_SHADE = 5  # shades of a map, as many as the style has
MAX_PARTS = 8  # as many shades as the style has


def bar(share: float) -> str:
    """Return a share (0…1) as a bar."""
    width = BAR_WIDTH * min(max(share, 0.0), 1.0)
    return (
        f'<svg class="bar" width="{BAR_WIDTH}" height="{BAR_HEIGHT}" aria-hidden="true">'
        f'<rect class="track" width="{BAR_WIDTH}" height="{BAR_HEIGHT}"></rect>'
        f'<rect width="{width:.1f}" height="{BAR_HEIGHT}"></rect></svg>'
    )


def curve(drawn: Curve) -> str:
    """Return a cell's curve between its lowest and highest value."""
    if drawn.column is None:
        values = [float(value) for value in drawn.values]
        places = _even(len(values))
    else:
        values = [float(point[drawn.column] or 0) for point in drawn.values]
        end = drawn.values[-1][0] or 1.0 if values else 1.0
        places = [min(max((point[0] or 0) / end, 0.0), 1.0) for point in drawn.values]
    low, span = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    heights = [(value - low) / span if span else 0.5 for value in values]
    line = _points(places, heights, CURVE_WIDTH, CURVE_HEIGHT)
    return (
        f'<svg width="{CURVE_WIDTH}" height="{CURVE_HEIGHT}" aria-hidden="true">'
        f'<polyline points="{line}"></polyline></svg>'
    )


def drawing(chart: Chart) -> str:
    """Return a chart with its title, its largest value and what its ends are."""
    caption = f"<b>{escaped(chart.title)}</b> <i>{escaped(chart.top)}</i>"
    note = f"<span>{escaped(chart.note)}</span>" if chart.note else ""
    if chart.kind == "parts":
        return f"<figure><figcaption>{caption}</figcaption>{_parts(chart)}</figure>"
    if chart.kind == "map":
        return f"<figure><figcaption>{caption}</figcaption>{_map(chart)}</figure>"
    top = max(chart.values, default=0.0)
    heights = [value / top if top else 0.0 for value in chart.values]
    shapes = {"bars": _bars, "line": _line, "area": _area}[chart.kind](chart, heights)
    picture = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escaped(chart.title)}">{shapes}'
        f'<line class="axis" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"></line></svg>'
    )
    step = -(-len(chart.labels) // MAX_LABELS)
    labels = "".join(f"<span>{escaped(label)}</span>" for label in chart.labels[:: step or 1])
    axis = f'<div class="axis">{labels}</div>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}{axis}{note}</figure>"


def _even(count: int) -> list[float]:
    return [index / max(count - 1, 1) for index in range(count)]


def _points(places: Sequence[float], heights: Sequence[float], width: int, height: int) -> str:
    return " ".join(
        f"{place * (width - 4) + 2:.1f},{(1 - share) * (height - 4) + 2:.1f}"
        for place, share in zip(places, heights, strict=True)
    )


def _bars(_: Chart, heights: Sequence[float]) -> str:
    step = WIDTH / max(len(heights), 1)
    return "".join(
        f'<rect x="{index * step:.1f}" y="{HEIGHT * (1 - share):.1f}" '
        f'width="{step * (1 - GAP):.1f}" height="{HEIGHT * share:.1f}"></rect>'
        for index, share in enumerate(heights)
    )


def _line(_: Chart, heights: Sequence[float]) -> str:
    places = _even(len(heights))
    dots = "".join(
        f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="2.5"></circle>'
        for point in _points(places, heights, WIDTH, HEIGHT).split()
    )
    return f'<polyline points="{_points(places, heights, WIDTH, HEIGHT)}"></polyline>{dots}'


def _area(chart: Chart, heights: Sequence[float]) -> str:
    """Return steps: each value holds until the next begins."""
    corners = [f"0,{HEIGHT}"]
    ends = [*chart.positions[1:], 1.0]
    for begin, end, share in zip(chart.positions, ends, heights, strict=True):
        y = HEIGHT * (1 - share)
        corners += [f"{begin * WIDTH:.1f},{y:.1f}", f"{end * WIDTH:.1f},{y:.1f}"]
    return f'<polygon points="{" ".join([*corners, f"{WIDTH},{HEIGHT}"])}"></polygon>'


def _map(chart: Chart) -> str:
    """Return a table whose cells are the darker the larger their values are."""
    largest, columns = max(chart.values, default=0.0) or 1.0, len(chart.labels)
    head = "".join(f"<th>{escaped(label)}</th>" for label in ("", *chart.labels))
    lines = []
    for number, label in enumerate(chart.rows):
        cells = range(number * columns, (number + 1) * columns)
        shades = "".join(
            f'<td class="shade{round(MAX_SHADE * chart.values[cell] / largest)}">'
            f"{escaped(chart.texts[cell])}</td>"
            for cell in cells
        )
        lines.append(f"<tr><th>{escaped(label)}</th>{shades}</tr>")
    return f'<table class="map"><tr>{head}</tr>{"".join(lines)}</table>'


def _parts(chart: Chart) -> str:
    """Return one bar divided, and what its parts are; the smallest have one shade together."""
    total = sum(chart.values)
    ends = list(itertools.accumulate(chart.values, initial=0.0))
    shades = [f"part{min(index, MAX_PARTS - 1)}" for index in range(len(chart.values))]
    shapes = "".join(
        f'<rect class="{shade}" x="{WIDTH * begin / total:.1f}" '
        f'width="{max(WIDTH * value / total - 1, 0.5):.1f}" height="16"></rect>'
        for shade, begin, value in zip(shades, ends, chart.values, strict=False)
    )
    legend = "".join(
        f'<span><svg width="9" height="9"><rect class="{shade}" width="9" height="9"></rect></svg> '
        f"{escaped(label)}</span>"
        for shade, label in zip(shades, chart.labels, strict=True)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} 16" width="{WIDTH}" height="16" role="img" '
        f'aria-label="{escaped(chart.title)}">{shapes}</svg><div class="legend">{legend}</div>'
    )
