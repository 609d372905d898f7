"""The regressions between two runs; falsy where there are none."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records import rendering
from torchgauge.records.comparison import Change, Comparison
from torchgauge.records.record import Record


class Regressions(Record, frozen=True, kw_only=True):
    """The metrics that surely got worse, and those of which it cannot be told.

    True where anything got worse; iterates over those.
    """

    found: tuple[Change, ...]
    undecided: tuple[Change, ...]
    comparison: Comparison

    def __bool__(self) -> bool:
        return bool(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.found)

    def __str__(self) -> str:
        return rendering.text(self, "regressions")
