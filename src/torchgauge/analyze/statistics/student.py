"""Student's t on the differences of blocks: the mean with its bounds, and its test."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from torchgauge.analyze.latency.noise import CONFIDENCE
from torchgauge.imports import imported
from torchgauge.records.record import Interval


class Estimate(NamedTuple):
    """The mean of d with its one-sided 97.5 % bounds, and the standard deviation of one d."""

    mean: float
    low: float
    high: float
    deviation: float
    blocks: int

    @property
    def interval(self) -> Interval:
        """The bounds as a relative change; both together hold 95 %."""
        return Interval(low=math.expm1(self.low), high=math.expm1(self.high))


def estimate(differences: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return mean and one-sided t bounds of the differences of two blocks or more."""
    t = imported("scipy.stats").t

    n = len(differences)
    mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
    reach = float(t.ppf(confidence, n - 1)) * deviation / math.sqrt(n)
    return Estimate(mean, mean - reach, mean + reach, deviation, n)


def p_value(differences: Sequence[float], bound: float) -> float:
    """Return p of a one-sided t test that the true mean is above `bound`."""
    t = imported("scipy.stats").t

    estimated = estimate(differences)
    if estimated.deviation == 0:
        return 0.0 if estimated.mean > bound else 1.0
    statistic = (estimated.mean - bound) * math.sqrt(estimated.blocks) / estimated.deviation
    return float(t.sf(statistic, estimated.blocks - 1))
