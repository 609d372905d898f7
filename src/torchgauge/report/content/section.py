"""One row and one titled section of a summary, shared by all formats."""

from __future__ import annotations

import dataclasses

SMALLEST_SHARE = 0.0005


@dataclasses.dataclass(frozen=True)
class Row:
    """One line: what it is, the figure, what to know about it; `share` (0…1) draws a bar.

    `how` overrides the section's for a figure that is known in another way.
    """

    label: str
    value: str
    note: str = ""
    share: float | None = None
    how: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """A titled group of rows; `how` is measured, counted, estimated or empty.

    `notes` are sentences below the rows. `headlines` are the labels of the rows that a short form
    shows, without notes; empty: all.
    """

    title: str
    how: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ()

    @property
    def short(self) -> Section:
        """The section with its headlines alone, if it has any."""
        if not self.headlines:
            return self
        rows = tuple(row for row in self.rows if row.label in self.headlines)
        return dataclasses.replace(self, rows=rows, notes=())
