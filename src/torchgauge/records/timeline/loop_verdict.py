"""The verdict of a loop: what bounds its steps, by how much, and what to do next."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Interval, Record

LoopBound = Literal[
    "loader",
    "host",
    "compute",
    "communication",
    "rank",
    "memory traffic",
    "nothing stands out",
    "unclear",
]


class LoopVerdict(Record, frozen=True, kw_only=True):
    """What bounds the steps of a loop, or of the loops of several ranks.

    Attributes:
        bound: What most of a step waits for; of a fault what it is a fault of.
        fault: Whether it is something slow that need not be; else it is what takes most of a step
            in which nothing is wrong.
        title: The verdict in one line.
        cause: What it is more closely: "data loading", "backward", "garbage collection".
        layer: The layer that it is of, where it is one's.
        rank: The rank that the others wait for; None where no rank stands out.
        share: Its share of a step.
        interval: The interval of `share`, over steps that resemble their neighbours.
        time: Seconds of a step.
        steps: Steps that it is of, none of them under the profiler.
        evidence: Figures that it is based on.
        command: What to run next; empty where the program is not known.
    """

    bound: LoopBound
    title: str
    fault: bool = False
    cause: str = ""
    layer: str = ""
    rank: int | None = None
    share: float | None = None
    interval: Interval | None = None
    time: float | None = None
    steps: int = 0
    evidence: tuple[str, ...] = ()
    command: str = ""
