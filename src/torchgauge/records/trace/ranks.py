"""The ranks of a distributed loop side by side: who waits for whom, and for how long."""

from __future__ import annotations

from torchgauge.records.exported import Exported
from torchgauge.records.record import MeasurementWarning, Record
from torchgauge.records.timeline.loop_verdict import LoopVerdict

SCHEMA = "torchgauge.ranks/1"


class RankTime(Record, frozen=True, kw_only=True):
    """The recorded steps of one rank, in seconds of a typical step.

    Attributes:
        number: The rank.
        steps: How many steps were recorded.
        step: `work` + `waiting`.
        work: The time in which the rank did something itself.
        waiting: The time in which it only waited for communication.
        communication: All communication that was under way, overlapping with other work or not.
        mfu: The utilization of its device at its bare steps; None where it is not known.
    """

    number: int
    steps: int
    step: float
    work: float
    waiting: float
    communication: float
    mfu: float | None = None


class Ranks(Exported, frozen=True, kw_only=True):
    """The ranks of one job, in order of number.

    Attributes:
        missing: Ranks without a record.
        straggler: The rank that works longest in undisturbed steps, in older records in recorded
            ones; None where the ranks do not differ by more than chance.
        lost: Seconds of a step that the others wait for the straggler, the median.
        share: The part of a step in which communication was under way, over all ranks.
        exposed: The part of a step in which a rank only waited for communication, over all ranks.
        verdict: What bounds the job; None where the records do not have the times of steps.
    """

    schema: str = SCHEMA
    world: int
    ranks: tuple[RankTime, ...]
    missing: tuple[int, ...] = ()
    straggler: int | None = None
    lost: float | None = None
    share: float | None = None
    exposed: float | None = None
    verdict: LoopVerdict | None = None
    warnings: tuple[MeasurementWarning, ...] = ()
