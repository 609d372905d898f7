"""The regressions between two runs; falsy where there are none."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records import rendering
from torchgauge.records.comparison import Change, Comparison
from torchgauge.records.record import Record


class Regressions(Record, frozen=True, kw_only=True):
    """The metrics that surely `regressed`, and those `undecided`, of which it cannot be told.

    True where anything got worse; iterates over those.
    """

    regressed: tuple[Change, ...]
    undecided: tuple[Change, ...]
    comparison: Comparison

    def __bool__(self) -> bool:
        return bool(self.regressed)

    def __len__(self) -> int:
        return len(self.regressed)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.regressed)

    def __str__(self) -> str:
        return rendering.text(self, "regressions")
