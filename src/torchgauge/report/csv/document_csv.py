"""The first table of any document as rows: what a kind of record has that says nothing else."""

from __future__ import annotations

from typing import Any

from torchgauge.records import rendering
from torchgauge.records.record import Record
from torchgauge.report import kinds
from torchgauge.report.content.document import Table


def table(record: Record, name: str) -> tuple[list[str], list[list[Any]]]:
    """Return the keys of the columns and all rows, numbers exact and in SI units."""
    tables = [block for block in kinds.document(record).blocks if isinstance(block, Table)]
    if name != "figures" or not tables:
        raise rendering.unfit(type(record).__name__, name)
    columns = [column for column in tables[0].columns if not column.drawn]
    rows = [
        [str(row.name), *(_plain(row.cells.get(column.key)) for column in columns)]
        for row in tables[0].rows
    ]
    return [tables[0].first or "name", *(column.key for column in columns)], rows


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else str(value)
