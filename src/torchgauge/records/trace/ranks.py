"""The ranks of a distributed loop side by side: who waits for whom, and for how long."""

from __future__ import annotations

from torchgauge.records import rendering
from torchgauge.records.exported import Exported
from torchgauge.records.record import MeasurementWarning, Record

SCHEMA = "torchgauge.ranks/1"


class RankTime(Record, frozen=True, kw_only=True):
    """One rank's recorded steps, seconds of a typical one.

    `step` = `work` + `waiting`: the time in which it did something itself, and in which it only
    waited for communication. `communication` is all that was under way, also beside other work.
    """

    number: int
    steps: int
    step: float
    work: float
    waiting: float
    communication: float


class Ranks(Exported, frozen=True, kw_only=True):
    """The ranks of one job in order of number; `missing` left no record.

    `straggler` is the rank that works longest, for which the others wait `lost` seconds of a step
    (the median); None where the ranks do not differ. `share` is the part of a step in which
    communication was under way, `exposed` that in which a rank only waited for it, over all ranks.
    """

    schema: str = SCHEMA
    world: int
    ranks: tuple[RankTime, ...]
    missing: tuple[int, ...] = ()
    straggler: int | None = None
    lost: float | None = None
    share: float | None = None
    exposed: float | None = None
    warnings: tuple[MeasurementWarning, ...] = ()

    def __str__(self) -> str:
        return rendering.text(self, "ranks")
