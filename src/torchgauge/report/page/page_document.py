"""The page of any document: its figures, findings and warnings first, then its tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.content.document import Findings, Table, Unit, Warnings
from torchgauge.report.content.section import Section
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_overview import figure, finding_entry, first_screen
from torchgauge.report.page.page_shorter import short, shortened_table

MAX_ROWS = 5_000  # of a table
UNITS: dict[Unit, page_tables.Unit] = {
    "time": "time",
    "bytes": "bytes",
    "count": "count",
    "percent": "share",
    "share": "share",
}


class Option(NamedTuple):
    """An option with its parts of the page; a part that is None is left out."""

    name: str
    parts: dict[str, Any]


class Choice(NamedTuple):
    """The options, what they are (`label`), and the index of the one shown first.

    They are chosen in the page's header, or in the `view` that they are about.
    """

    label: str
    options: list[Option]
    first: int = 0
    view: str = ""

    def without(self, names: Collection[str]) -> Choice:
        """Return the choice without the parts of these names, and without parts that are None."""
        options = [
            Option(
                option.name,
                {k: v for k, v in option.parts.items() if v is not None and k not in names},
            )
            for option in self.options
        ]
        return self._replace(options=options)


def title(record: Record) -> str:
    """Return the title of the document."""
    return kinds.document(record).title


def overview(record: Record) -> dict[str, Any]:
    """Return the first screen: facts, figures, what stands out, and warnings."""
    document = kinds.document(record)
    facts = () if document.facts is None else document.facts.pairs
    sections = [block for block in document.blocks if isinstance(block, Section)]
    listed = [block.warnings for block in document.blocks if isinstance(block, Warnings)]
    recorded_warnings = [warning for group in listed for warning in group]
    return first_screen(
        ([label, short(str(text)), ""] for label, text in facts),
        (
            figure(row.label, row.value, row.note, row.how or section.how)
            for section in sections
            for row in section.rows
        ),
        (
            finding_entry(finding)
            for block in document.blocks
            if isinstance(block, Findings)
            for finding in block.findings
        ),
        recorded_warnings,
        complete=not any(warning.failed for warning in recorded_warnings),
    )


def tables(record: Record) -> list[dict[str, Any]] | None:
    """Return the tables, each figure in its unit; texts where a column has other values."""
    shown_tables = [block for block in kinds.document(record).blocks if isinstance(block, Table)]
    return [shortened_table(_table(block), MAX_ROWS) for block in shown_tables] or None


def _table(shown_table: Table) -> dict[str, Any]:
    columns = [page_tables.Column("", shown_table.first, "text")]
    cells: dict[str, list[Any]] = {"": [str(row.name) for row in shown_table.rows]}
    for column in shown_table.columns:
        values = [row.cells.get(column.key) for row in shown_table.rows]
        numbers = all(value is None or isinstance(value, int | float) for value in values)
        unit = UNITS.get(column.unit) if numbers else None
        if not column.drawn:
            columns.append(page_tables.Column(column.key, column.header, unit or "text"))
            texts = [column.text(row) for row in shown_table.rows]
            cells[column.key] = values if unit else texts
    return page_tables.table(shown_table.title.lower() or "rows", columns, cells)


PARTS = {"overview": overview, "tables": tables}
