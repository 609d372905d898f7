"""A document on a terminal: its blocks one below the other, an empty line between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid

from torchgauge import units
from torchgauge.report.console.bar import STYLES, bar, fitted_table, style_of
from torchgauge.report.console.line import sparkline, stepped
from torchgauge.report.console.text import END, Text
from torchgauge.report.content import document as doc
from torchgauge.report.content.findings import evidence_text
from torchgauge.report.content.section import Row, Section
from torchgauge.report.content.sections import warning_text
from torchgauge.report.notebook.charts import Curve
from torchgauge.report.tables import tree_tables
from torchgauge.visible import visible

BAR = 20
LABEL = 14
VALUE = 16
GAP = 2
MIN_LAST_WIDTH = 8  # columns of the last cell
SIGNS = {
    "serious": ("✗", "bold red"),
    "warning": ("!", "bold yellow"),
    "info": ("·", "dim"),
    "✗": ("✗", "bold red"),
    "!": ("!", "bold yellow"),
    "i": ("i", "cyan"),
    "✓": ("✓", "green"),
    "?": ("?", "dim"),
    "·": ("·", "dim"),
    "▲": ("▲", "bold red"),
    "▼": ("▼", "bold green"),
    "◆": ("◆", "bold yellow"),
}


def view(shown_document: doc.Document, width: int) -> RenderableType:
    """Return the document as something rich prints in `width` columns."""
    parts: list[RenderableType] = []
    if shown_document.title:
        title = (shown_document.title, f"bold {STYLES[shown_document.tone]}")
        how = (_how(shown_document.how), "dim italic")
        parts.append(Text.assemble(title, how, _how(shown_document.headline)))
    if shown_document.line:
        parts.append(Text(f"  {shown_document.line}", style="dim"))
    if shown_document.facts is not None:
        parts.append(_facts(shown_document.facts))
    for block in (*shown_document.blocks, *shown_document.conclusion):
        tight = block.title == "" if isinstance(block, Section) else getattr(block, "tight", False)
        parts += [*([] if tight or not parts else [Text("")]), _view(block, width)]
    return Group(*parts)


def _view(block: doc.Block, width: int) -> RenderableType:
    if isinstance(block, doc.Tree):
        parts = (_view(part, width) for part in tree_tables.blocks(block.tree, block.options))
        return Group(*itertools.islice(_spaced(parts), 1, None))
    if isinstance(block, doc.Table):
        return table(block, width)
    return _VIEWS[type(block)](block)


def _spaced(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield from (Text(""), part)


def _title(title: str, how: str = "") -> Text:
    return Text.assemble((title, "bold"), (_how(how), "dim italic"))


def _how(how: str) -> str:
    return f"  {how}" if how else ""


def _below_title(title: str, how: str, *parts: RenderableType) -> RenderableType:
    return Group(*([_title(title, how)] if title else []), *parts)


def _grid(*columns: dict[str, Any], gap: int = GAP) -> Grid:
    grid = Grid.grid(padding=(0, gap))
    for column in columns:
        grid.add_column(**column)
    return grid


def _detailed(text: str | doc.Detailed) -> Text:
    if isinstance(text, str):
        return Text(text)
    return Text.assemble(text.text, (text.detail, "dim"))


def _facts(facts: doc.Facts) -> RenderableType:
    widths = {"min_width": facts.label, "max_width": facts.max_label}
    grid = _grid({"style": "dim", "no_wrap": True, **widths}, {"overflow": "fold"})
    for label, text in facts.pairs:
        grid.add_row(f"  {label}", _detailed(text), style=STYLES[facts.tone])
    return _below_title(facts.title, facts.how, grid)


def section_view(section: Section) -> RenderableType:
    """Return a titled group of rows."""
    grid = _grid(
        {"style": "dim", "width": LABEL, "no_wrap": True},
        {"justify": "right", "min_width": VALUE, "no_wrap": True},
        {"overflow": "fold"},
    )
    for row in section.rows:
        grid.add_row(f"  {row.label}", row.value, _row_note(row))
    return _below_title(section.title, section.how, grid, *_notes(section.notes))


def _row_note(row: Row) -> Text:
    note = Text.of_lines(row.note, style="dim")
    if row.share is None:
        return note
    share = f" {units.share(row.share):>6}"
    return Text.assemble((bar(row.share, BAR), "cyan"), share, "  " if row.note else "", note)


def _notes(notes: Iterable[str]) -> list[RenderableType]:
    return [Padding(Text(note, style="dim"), (0, 0, 0, GAP)) for note in notes]


def findings_view(findings: doc.Findings) -> RenderableType:
    """Return what stands out, each with evidence and what to try."""
    grid = _grid({"width": 3, "justify": "right"}, {"overflow": "fold"}, gap=1)
    for finding in findings.findings:
        title: Any = (finding.title, "bold")
        text = Text.assemble(title, END, f"{evidence_text(finding)} ", (finding.remedy, "dim"))
        sign = SIGNS[finding.severity]
        if findings.ids:
            sign = SIGNS["i"] if finding.severity == "info" else sign
            text = Text.assemble(
                title, (f"  [{finding.id}]", "dim"), END, evidence_text(finding), END
            )
            text = Text.assemble(text, ("→ ", "dim"), finding.remedy)
        grid.add_row(Text(*sign), text)
    return Group(_title(findings.title), grid)


def warnings_view(warnings: doc.Warnings) -> RenderableType:
    """Return warnings; probes that failed have a sign of their own."""
    grid = _grid({"width": 3, "justify": "right"}, {"overflow": "fold"}, gap=1)
    for warning in warnings.warnings:
        probe = f"{warning.probe}: " if warning.probe else ""
        message = Text.of_lines(warning_text(warning))
        text = Text.assemble(probe, message, (f"  [{warning.id}]", "dim"))
        grid.add_row(Text(*SIGNS["✗" if warning.failed else "!"]), text)
    return Group(_title(warnings.title), grid)


def _items(items: doc.Items) -> RenderableType:
    if not any(sign for sign, _ in items.entries):
        return _below_title(items.title, "", *_notes(str(text) for _, text in items.entries))
    label = {"style": "dim", "width": LABEL, "no_wrap": True}
    labels = [label] if items.labels else []
    sign_width = 3 + 2 * items.level
    grid = _grid({"width": sign_width, "justify": "right"}, *labels, {"overflow": "fold"}, gap=1)
    for index, (sign, text) in enumerate(items.entries):
        named = items.labels[index : index + 1]
        grid.add_row(Text(*SIGNS.get(sign, (sign, ""))), *named, _detailed(text))
    if items.omitted_count:
        grid.add_row("", Text(f"… {items.omitted_count} more", style="dim"))
    return _below_title("  " * items.level + items.title, "", grid)


def _note(note: doc.Note) -> RenderableType:
    text = Text(note.text, style=STYLES[note.tone])
    return Padding(text, (0, 0, 0, GAP * note.level)) if note.level else text


def _heading(heading: doc.Heading) -> Text:
    title = (f"{'  ' * heading.level}{heading.title}", f"bold {STYLES[heading.tone]}".rstrip())
    detail = f" ({heading.detail})" * bool(heading.detail)
    below = (END, (f"  {heading.line}", "dim")) if heading.line else ()
    return Text.assemble(
        title, (detail, title[1]), (_how(heading.how), "dim italic"), _how(heading.headline), *below
    )


def table(shown_table: doc.Table, width: int) -> RenderableType:
    """Return a table in its layout, with a note on omitted rows."""
    rows = shown_table.rows[: shown_table.top]
    omitted_count = shown_table.total - len(rows)
    if shown_table.layout == "fitted":
        title, how = shown_table.title, shown_table.how
        grid = fitted_table(
            shown_table.first, rows, shown_table.text_columns, width, shown_table.longest
        )
        omitted_name = f"other {shown_table.noun}" if shown_table.noun else "others"
        omitted = [Text(f"… {omitted_count:,} {omitted_name}", style="dim")] * (omitted_count > 0)
        parts = [grid] * bool(rows)
        return _below_title(title, how, *parts, *omitted, *_notes(shown_table.notes))
    grid = Grid(
        box=None,
        padding=(0, GAP, 0, 0),
        pad_edge=False,
        header_style="dim",
        title=_title(shown_table.title, shown_table.how) if shown_table.title else None,
        title_justify="left",
    )
    fill = _fill_names_last if shown_table.layout == "names last" else _fill
    fill(grid, shown_table, rows, width)
    notes = [f"and {omitted_count:,} more"] * (omitted_count > 0)
    return Group(grid, *_notes([*notes, *shown_table.notes]))


def _fill(grid: Grid, shown_table: doc.Table, rows: Sequence[doc.Row], width: int) -> None:
    cut = shown_table.layout == "cut"
    overflow: Any = "ellipsis" if cut else "fold"
    grid.add_column(f"  {shown_table.first}", overflow=overflow, no_wrap=cut)
    for column in shown_table.text_columns:
        grid.add_column(
            column.header, no_wrap=True, justify=_justify(column), style=style_of(column)
        )
    for row in rows:
        cells = (_cell(column, row, width) for column in shown_table.text_columns)
        name = Text.assemble("  " + "  " * row.level, _detailed(row.name))
        grid.add_row(name, *cells, style=STYLES[row.tone])


def _fill_names_last(
    grid: Grid, shown_table: doc.Table, rows: Sequence[doc.Row], width: int
) -> None:
    # Of themselves all columns would get narrower alike, and figures be cut.
    grid.add_column("", width=0)
    room = width - GAP
    cells = {c.key: [_cell(c, row, width) for row in rows] for c in shown_table.text_columns}
    for column in shown_table.text_columns:
        column_width = max(len(column.header), *map(len, cells[column.key]), 0)
        room -= column_width + GAP
        justify, style = _justify(column), style_of(column)
        grid.add_column(
            column.header, justify=justify, no_wrap=True, width=column_width, style=style
        )
    names = [_detailed(row.name) for row in rows]
    last_width = max(len(shown_table.first), *map(len, names), 0)
    last_width = min(last_width, max(room, MIN_LAST_WIDTH))
    grid.add_column(shown_table.first, overflow="ellipsis", no_wrap=True, width=last_width)
    for index, name in enumerate(names):
        grid.add_row("", *(column_cells[index] for column_cells in cells.values()), name)


def _justify(column: doc.Column) -> Any:
    return "left" if column.left_aligned or column.drawn else "right"


def _cell(column: doc.Column, row: doc.Row, width: int) -> Text:
    value = row.cells.get(column.key)
    if column.unit == "bar":
        return Text("" if value is None else bar(float(value), column.max_width))  # type: ignore[arg-type]
    if isinstance(value, Curve):
        return Text(_curve(value, width), style=STYLES[value.tone])
    return Text(visible(column.text(row)))


def _curve(curve: Curve, width: int) -> str:
    room = max(min(width - curve.reserve, curve.width), 8) if curve.reserve else curve.width
    if curve.column is None:
        return sparkline(curve.values, room)
    return stepped(curve.values, curve.column, room)


_VIEWS: dict[type, Callable[[Any], RenderableType]] = {
    doc.Facts: _facts,
    doc.Findings: findings_view,
    doc.Heading: _heading,
    doc.Items: _items,
    doc.Listing: lambda listing: Padding(
        Text.of_lines(listing.lines, style="cyan", overflow="fold"), (0, 0, 0, 4)
    ),
    doc.Note: _note,
    Section: section_view,
    doc.Warnings: warnings_view,
}
