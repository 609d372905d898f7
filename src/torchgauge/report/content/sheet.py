"""A titled table of a recording's figures, shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torchgauge.report.console.text import Text

Cell = str | Text


class Sheet(NamedTuple):
    """Rows of a name and its figures; `how` is measured, counted, estimated or empty.

    `names` are those of the figures: "" is a drawing, for terminals alone. `first` is that of the
    names, which are the file's where `recorded`, else our own words. `strong` are rows that stand
    out. `total_rows` counts all rows, where those given are the first of them.
    """

    title: str
    how: str
    names: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    first: str = ""
    recorded: bool = False
    strong: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    total_rows: int = 0

    @property
    def omitted_rows(self) -> int:
        """How many rows are left out."""
        return max(self.total_rows - len(self.rows), 0)
