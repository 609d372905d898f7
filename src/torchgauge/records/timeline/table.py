"""A flat table: named columns, printed with units."""

from __future__ import annotations

import dataclasses
from typing import Any

from torchgauge.imports import required
from torchgauge.records import rendering

LONGEST = 90  # characters of the names in a table's `repr`


@dataclasses.dataclass(frozen=True, repr=False)
class Table:
    """Named columns of equal length; a cell is None where its figure is unknown.

    Printed, or shown by a notebook, it is a table with units; `columns` and `rows()` are in SI.
    """

    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def rows(self) -> list[dict[str, Any]]:
        """Return each row as a mapping."""
        names = list(self.columns)
        return [
            dict(zip(names, values, strict=True))
            for values in zip(*self.columns.values(), strict=True)
        ]

    def to_pandas(self) -> Any:
        """Return a DataFrame. Raises MissingExtra without pandas."""
        return required("pandas", "pandas", "A DataFrame").DataFrame(self.columns)

    def __str__(self) -> str:
        return rendering.text(self, "table")

    def __repr__(self) -> str:
        names = ", ".join(self.columns)
        shown_names = names if len(names) <= LONGEST else f"{names[: LONGEST - 1]}…"
        return f"<Table: {len(self)} rows of {shown_names or 'no column'}>"

    def __rich_console__(self, _console: Any, options: Any) -> list[Any]:
        return rendering.segments(self, "table", options.max_width)

    def _repr_html_(self) -> str:
        return rendering.text(self, "table", html=True)
