"""What a latency measured in one process or in several says of the next run on this machine.

Three things vary: the calls of a process, the processes of a run, and the runs of a machine over
minutes and days (neighbours, clocks). One process shows the first, several processes the second;
the third is known where the host remembers earlier runs. An interval says how far it reaches.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchgauge.imports import imported
from torchgauge.model.record import Interval

if TYPE_CHECKING:
    from torchgauge.analyze.run_spread import RunSpread
    from torchgauge.model.record import IntervalScope

FEWEST = 3
FEWEST_FOR_DRIFT = 5
# What a run's own processes tell of their spread counts more than what earlier runs tell.
MOST_PRIOR = 8.0
CONFIDENCE = 0.95


class Headline(NamedTuple):
    """The interval of the median, how far it reaches, and how it was got."""

    interval: Interval | None
    scope: IntervalScope
    method: str


class _Part(NamedTuple):
    """One part of the variance of a log median, with its degrees of freedom."""

    variance: float
    freedom: float


def headline(
    medians: Sequence[float], within: Interval | None, spread: RunSpread | None = None
) -> Headline:
    """Return the interval of the latency from one median (seconds) of each process.

    `within` is the interval of the only process, from its samples; `spread` what the host
    remembers of earlier runs.
    """
    count = len(medians)
    if min(medians) <= 0:
        return Headline(None, "process" if count == 1 else "runs", "none: a coarse clock")
    if spread is not None and (count > 1 or (within is not None and spread.within is not None)):
        return _calibrated(medians, within, spread)
    if count == 1:
        method = "order statistics under autocorrelation, one process"
        return Headline(within, "process", method if within else "none: too few samples")
    if count < FEWEST:
        return Headline(None, "runs", "none: two processes")
    return Headline(
        process_interval(medians), "runs", f"Student's t on the log medians of {count} processes"
    )


def process_interval(medians: Sequence[float]) -> Interval | None:
    """Return the 95 % interval over processes that ran one after the other, in that order.

    None below three processes: with two, the interval would be 6 times their distance on either
    side, or by luck next to nothing. None where a median is 0 (a coarse clock). The interval always
    holds the median of the medians, which the t interval of a skewed spread may miss.

    Source: Student (1908), on log medians because effects on latency multiply.
    """
    if len(medians) < FEWEST or min(medians) <= 0:
        return None
    return _interval(medians, [_of_processes(medians)], "runs")


def _calibrated(medians: Sequence[float], within: Interval | None, spread: RunSpread) -> Headline:
    parts = [_Part(spread.between**2, spread.runs), _of_processes(medians, spread)]
    if len(medians) == 1 and within is not None and within.low > 0:
        parts.append(_Part((math.log(within.high / within.low) / 4) ** 2, 60.0))
    count = len(medians)
    processes = f"{count} processes" if count > 1 else "one process"
    method = f"{processes}, and what {spread.runs:.0f} earlier runs on this host differed by"
    return Headline(_interval(medians, parts, "calibrated"), "calibrated", method)


def _of_processes(medians: Sequence[float], spread: RunSpread | None = None) -> _Part:
    """Return the variance of the mean of the log medians that comes from processes alone."""
    logs = [math.log(median) for median in medians]
    count, freedom = len(logs), len(logs) - 1.0
    variance = statistics.variance(logs) if count > 1 else 0.0
    if spread is not None and spread.within is not None:
        prior = min(spread.within_freedom, MOST_PRIOR)
        variance = (freedom * variance + prior * spread.within**2) / (freedom + prior)
        freedom += prior
    return _Part(variance * _drift(logs) / count, freedom)


def _drift(logs: Sequence[float]) -> float:
    """Return by how much neighbours' likeness widens the variance of the mean, at least 1.

    Source: von Neumann's ratio (1941): without drift half the mean squared difference of
    neighbours is the variance.
    """
    if len(logs) < FEWEST_FOR_DRIFT:
        return 1.0
    steps = statistics.fmean((b - a) ** 2 for a, b in itertools.pairwise(logs)) / 2
    return max(1.0, statistics.variance(logs) / steps) if steps > 0 else 1.0


def _interval(medians: Sequence[float], parts: Sequence[_Part], scope: IntervalScope) -> Interval:
    """Return Student's t about the mean of the logs; degrees of freedom after Satterthwaite."""
    stdtrit = imported("scipy.special").stdtrit

    whole = math.fsum(part.variance for part in parts)
    weights = math.fsum(part.variance**2 / part.freedom for part in parts if part.freedom > 0)
    freedom = whole**2 / weights if weights > 0 else 1.0
    centre = statistics.fmean(math.log(median) for median in medians)
    reach = float(stdtrit(max(1.0, freedom), 0.5 + CONFIDENCE / 2)) * math.sqrt(whole)
    middle = statistics.median(medians)
    return Interval(
        low=min(math.exp(centre - reach), middle),
        high=max(math.exp(centre + reach), middle),
        scope=scope,
    )
