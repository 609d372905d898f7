"""Each figure of a tree's rows with that of all below them, summed up once for the whole tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgauge.model.tree import TreeRow


class Totals(dict[str, list[int | None]]):
    """A figure's totals by row, made when they are first asked for; None where none is known."""

    def __init__(self, rows: Sequence[TreeRow]) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, figure: str) -> list[int | None]:
        found: list[int | None] = [getattr(row, figure) for row in self._rows]
        for at in range(len(found) - 1, 0, -1):  # a parent comes before its children
            total, parent = found[at], self._rows[at].parent
            if total is not None and parent >= 0:
                above = found[parent]
                found[parent] = total if above is None else above + total
        self[figure] = found
        return found
