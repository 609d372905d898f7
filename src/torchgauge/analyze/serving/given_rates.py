"""What levels at given rates show of the capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Capacity


def capacity_of_levels(levels: Sequence[Level]) -> Capacity | None:
    """Return what levels at given rates show of the capacity; None without goals or rates."""
    by_rate = sorted(
        ((level.arrivals.rate, level) for level in levels if level.arrivals.rate and level.goals),
        key=lambda pair: pair[0],
    )
    if not by_rate:
        return None
    missed = [rate for rate, level in by_rate if level.verdict == "missed"]
    lowest = min(missed, default=math.inf)
    met = [rate for rate, level in by_rate if level.verdict == "met" and rate < lowest]
    if not met:
        return Capacity(reason="No rate that was tried met the goals in its whole interval.")
    interval = Interval(low=met[-1], high=lowest, scope="process") if missed else None
    above = not missed and met[-1] == by_rate[-1][0]
    reason = (
        "The highest rate that was tried met the goals."
        if above
        else "Of the rates that were given."
    )
    return Capacity(rate=met[-1], interval=interval, above_all_tried=above, reason=reason)
