"""How much more than the machine's speed a time under load changes with it.

A server that is 10 % slower answers as the same server at a 10 % higher rate, all times stretched:
T(rate, speed) = f(rate ÷ speed) ÷ speed. So how latency grows with the rate tells how it grows with
the speed of the machine. 1 ÷ T falls about linearly to 0 at the rate that can be answered at most,
exactly so for M/M/1, whose T is 1 ÷ (μ − λ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchgauge.records.headline.serving_figures import RATES, level_estimate
from torchgauge.records.serving.level import Level


def growth(name: str, level: Level, levels: Sequence[Level]) -> float:
    """Return d ln figure ÷ d ln(time of the machine) at a level: 1 where nothing queues.

    `name` is as of `level_estimate`, `levels` are those of the same record.
    """
    if name == "goodput":
        return _of_goodput(level, growth("latency_p99", level, levels))
    if name in RATES or level.arrivals.rate is None:
        return 1.0
    own, other = level_estimate(level, name), _other(name, level, levels)
    if own is None or own.value <= 0:
        return 1.0
    if other is None:
        # The fastest request met no queue: it stands for a rate of 0.
        distribution = getattr(level, name.rpartition("_")[0])
        return max(1.0, own.value / distribution.low) if distribution.low > 0 else math.inf
    low, high = sorted([(level.arrivals.rate, own.value), other])
    if high[1] <= low[1]:
        return 1.0
    fall = (1 / low[1] - 1 / high[1]) / (high[0] - low[0])
    return max(1.0, (1 / low[1] + fall * low[0]) * own.value)


def _other(name: str, level: Level, levels: Sequence[Level]) -> tuple[float, float] | None:
    """Return rate and time of the lowest other rate without saturation; None without any."""
    points = [
        (other.arrivals.rate, estimate.value)
        for other in levels
        if other.arrivals.rate is not None
        and (other.scenario, other.arrivals.kind) == (level.scenario, level.arrivals.kind)
        and other.arrivals.rate != level.arrivals.rate
        and not (other.saturation is not None and other.saturation.saturated)
        and (estimate := level_estimate(other, name)) is not None
        and estimate.value > 0
    ]
    return min(points, default=None)


def _of_goodput(level: Level, of_times: float) -> float:
    """Return how goodput falls: the share that misses is about exp(−limit ÷ T)."""
    if level.goodput is None or not level.offered:
        return 1.0
    missing = 1 - level.goodput.value / level.offered
    missing = min(max(missing, 1 / (level.count + 1)), 1 - 1 / (level.count + 1))
    return missing * -math.log(missing) / (1 - missing) * of_times
