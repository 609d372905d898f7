"""Trials of a search for the capacity, and what each showed of the goals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchgauge.analyze.serving.left_out import GoalCount, Line, fitted_line
from torchgauge.records.serving.level import LeftOut

Stage = Literal["bracket", "repeat", "confirm"]
# ln(nearness) beyond which a level says no more of which side of the goals it is on.
MOST_SIDE = 2.0


@dataclass(frozen=True)
class Trial:
    """A rate to try: for how many times the usual seconds, and with which seed's schedule."""

    rate: float
    seed: int
    length: float = 1.0
    stage: Stage = "bracket"


@dataclass(frozen=True)
class Attempt:
    """A trial, how far its level was from each goal, and why it is left out, if it is."""

    trial: Trial
    goals: tuple[GoalCount, ...]
    saturated: bool
    verdict: Literal["met", "missed", "unclear"] | None
    left_out: LeftOut = ""

    @property
    def nearness(self) -> float:
        """Above 1 a goal was missed, by the figures alone."""
        if self.saturated:
            return math.inf
        return max((count.nearness for count in self.goals), default=math.inf)

    @property
    def side(self) -> float:
        """ln(nearness), as far as it says more of the side: below 0 the goals were met."""
        nearness = min(max(self.nearness, math.exp(-MOST_SIDE)), math.exp(MOST_SIDE))
        return math.log(nearness)


def first_missed(attempts: Sequence[Attempt]) -> Line | None:
    """Return the line of the goal that is missed at the lowest rate; None where none is known."""
    lines = [
        line
        for counts in zip(*(attempt.goals for attempt in attempts), strict=True)
        if (line := fitted_line(counts)) is not None
    ]
    return min(lines, key=lambda line: (line.interval is None, line.rate), default=None)
