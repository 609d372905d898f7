"""The interval of a latency for the next run on this machine, from one process or several.

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
from torchgauge.records.record import Interval

if TYPE_CHECKING:
    from torchgauge.analyze.latency.run_spread import RunSpread
    from torchgauge.records.record import IntervalScope

MIN_PROCESSES = 3
MIN_PROCESSES_FOR_DRIFT = 5
# The spread of earlier runs' processes counts for less than that of the run's own processes.
MAX_PRIOR_FREEDOM = 8.0
CONFIDENCE = 0.95


class Headline(NamedTuple):
    """The interval of the median, how far it reaches, and how it was got."""

    interval: Interval | None
    scope: IntervalScope
    method: str


class _VarianceComponent(NamedTuple):
    """A component of the variance of a log median, with its degrees of freedom."""

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
        return _calibrated_headline(medians, within, spread)
    if count == 1:
        method = "order statistics under autocorrelation, one process"
        return Headline(within, "process", method if within else "none: too few samples")
    if count < MIN_PROCESSES:
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
    if len(medians) < MIN_PROCESSES or min(medians) <= 0:
        return None
    return _interval(medians, [_process_variance(medians)], "runs")


def _calibrated_headline(
    medians: Sequence[float], within: Interval | None, spread: RunSpread
) -> Headline:
    components = [
        _VarianceComponent(spread.between**2, spread.runs),
        _process_variance(medians, spread),
    ]
    if len(medians) == 1 and within is not None and within.low > 0:
        components.append(_VarianceComponent((math.log(within.high / within.low) / 4) ** 2, 60.0))
    count = len(medians)
    processes = f"{count} processes" if count > 1 else "one process"
    method = f"{processes}, and what {spread.runs:.0f} earlier runs on this host differed by"
    return Headline(_interval(medians, components, "calibrated"), "calibrated", method)


def _process_variance(
    medians: Sequence[float], spread: RunSpread | None = None
) -> _VarianceComponent:
    """Return the variance of the mean log median that comes from the spread of processes."""
    logs = [math.log(median) for median in medians]
    count, freedom = len(logs), len(logs) - 1.0
    variance = statistics.variance(logs) if count > 1 else 0.0
    if spread is not None and spread.within is not None:
        prior = min(spread.within_freedom, MAX_PRIOR_FREEDOM)
        variance = (freedom * variance + prior * spread.within**2) / (freedom + prior)
        freedom += prior
    return _VarianceComponent(variance * _drift_inflation(logs) / count, freedom)


def _drift_inflation(logs: Sequence[float]) -> float:
    """Return the factor, at least 1, by which correlated neighbours widen the variance of the mean.

    Source: von Neumann's ratio (1941): without drift half the mean squared difference of
    neighbours is the variance.
    """
    if len(logs) < MIN_PROCESSES_FOR_DRIFT:
        return 1.0
    steps = statistics.fmean((b - a) ** 2 for a, b in itertools.pairwise(logs)) / 2
    return max(1.0, statistics.variance(logs) / steps) if steps > 0 else 1.0


def _interval(
    medians: Sequence[float], components: Sequence[_VarianceComponent], scope: IntervalScope
) -> Interval:
    """Return Student's t interval of the mean log; degrees of freedom after Satterthwaite."""
    stdtrit = imported("scipy.special").stdtrit

    total_variance = math.fsum(component.variance for component in components)
    weights = math.fsum(
        component.variance**2 / component.freedom
        for component in components
        if component.freedom > 0
    )
    freedom = total_variance**2 / weights if weights > 0 else 1.0
    centre = statistics.fmean(math.log(median) for median in medians)
    reach = float(stdtrit(max(1.0, freedom), 0.5 + CONFIDENCE / 2)) * math.sqrt(total_variance)
    middle = statistics.median(medians)
    return Interval(
        low=min(math.exp(centre - reach), middle),
        high=max(math.exp(centre + reach), middle),
        scope=scope,
    )
