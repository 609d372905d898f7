"""The spread between runs of one target on one host, from the runs that the host remembers.

The interval of a latency for the next run on this machine, from one process or several.

Three things vary: the calls of a process, the processes of a run, and the runs of a machine over
minutes and days (neighbours, clocks). One process shows the first, several processes the second;
the third is known where the host remembers earlier runs. An interval says how far it reaches.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torchgauge.analyze.latency.noise import workload
from torchgauge.imports import imported
from torchgauge.records.environment import Environment
from torchgauge.records.latency.latency import PastRun
from torchgauge.records.record import Interval, IntervalScope
from torchgauge.records.target import TargetDescription

PRIOR = 4.0
"""The host's other targets count for at most this many runs of the target."""
FEWEST_AT_LEVEL = 3
SHIFT = 3.0
"""A level shift is taken out where that leaves a third of the spread, or less."""
FAR = 6.0
"""Standard deviations (as the median deviation has them) beyond which a run is drawn in."""
FEWEST_TO_DRAW = 5
"""Fewer runs do not separate an outlier from heavy tails, which an interval has to cover."""
NORMAL = 1.4826
"""The standard deviation over the median absolute deviation of normal noise."""


@dataclasses.dataclass(frozen=True)
class RunSpread:
    """The spread of one target's log medians on a host.

    Attributes:
        between: Standard deviation of a run's mean log median about the target's centre; it holds
            what processes of one run differ by, at the number of processes that runs had.
        runs: Degrees of freedom of `between`; those of other targets count for four at most.
        within: Standard deviation of the log medians of processes of one run; None where no run
            had two.
        within_freedom: Its degrees of freedom; 0 where it is None.
    """

    between: float
    runs: float
    within: float | None
    within_freedom: float


@dataclasses.dataclass(frozen=True)
class _Variance:
    """A variance and its degrees of freedom."""

    value: float
    freedom: float


def past_target(
    target: TargetDescription,
    environment: Environment,
    *,
    parameters: int | None = None,
    staged: bool = False,
    cold_cache: bool = False,
) -> str:
    """Return a name of the timed target with all settings that make times incomparable.

    `parameters` tells models of one class apart; `staged` says that stages around the model are
    timed as well.
    """
    return " ".join(
        (
            workload(target),
            *(() if target.precision_method == "native" else (target.precision_method,)),
            *(() if parameters is None else (f"parameters={parameters}",)),
            *(("staged",) if staged else ()),
            *(("cold",) if cold_cache else ()),
            f"threads={environment.settings.threads}",
            f"torch={environment.software.torch}",
        )
    )


def run_spread(runs: Sequence[PastRun], target: str, *, busy: bool | None) -> RunSpread | None:
    """Return how runs of a target spread on the host that remembers `runs`, in their order.

    Its own runs count most; where they are few, what the host's other targets spread by is worth
    four more. `busy` says what else the machine did in the run to be judged: a busy one is judged
    by busy ones alone, a quiet one by quiet ones where there are two of any target; None takes all.
    A single level shift (the model was changed) and single outliers do not count as spread.

    None where no target has two runs.
    """
    chosen = _comparable_runs(runs, busy)
    means: dict[str, list[float]] = {}
    inside: dict[str, list[_Variance]] = {}
    for run in chosen:
        logs = [math.log(median) for median in run.medians]
        means.setdefault(run.target, []).append(statistics.fmean(logs))
        if len(logs) > 1:
            variance = _Variance(statistics.variance(logs), len(logs) - 1)
            inside.setdefault(run.target, []).append(variance)
    between = _shrunk({name: _run_variance(logs) for name, logs in means.items()}, target)
    within = _shrunk({name: _pooled(variances) for name, variances in inside.items()}, target)
    if between is None:
        return None
    return RunSpread(
        between=math.sqrt(between.value),
        runs=between.freedom,
        within=None if within is None else math.sqrt(within.value),
        within_freedom=0.0 if within is None else within.freedom,
    )


def _comparable_runs(runs: Sequence[PastRun], busy: bool | None) -> list[PastRun]:
    usable = [run for run in runs if run.medians and min(run.medians) > 0]
    if busy is None:
        return usable
    equally_busy = [run for run in usable if run.busy == busy]
    names = [run.target for run in equally_busy]
    return equally_busy if busy or len(names) > len(set(names)) else usable


def _run_variance(logs: Sequence[float]) -> _Variance | None:
    """Return the variance of runs about their level, without one level shift and outliers."""
    if len(logs) < 2:
        return None
    single_level = _winsorised_variance(logs)
    shift_index = min(
        range(FEWEST_AT_LEVEL, len(logs) - FEWEST_AT_LEVEL + 1),
        key=lambda shift_index: _level_variance(logs, shift_index).value,
        default=None,
    )
    if shift_index is None:
        return single_level
    two_levels = _level_variance(logs, shift_index)
    return two_levels if two_levels.value * SHIFT**2 <= single_level.value else single_level


def _level_variance(logs: Sequence[float], shift_index: int) -> _Variance:
    return _pooled(
        [_winsorised_variance(logs[:shift_index]), _winsorised_variance(logs[shift_index:])]
    )


def _winsorised_variance(logs: Sequence[float]) -> _Variance:
    """Return the variance with single values far from the median drawn in."""
    centre = statistics.median(logs)
    reach = FAR * NORMAL * statistics.median(abs(log - centre) for log in logs)
    if len(logs) > FEWEST_TO_DRAW and reach > 0:
        logs = [min(max(log, centre - reach), centre + reach) for log in logs]
    return _Variance(statistics.variance(logs), len(logs) - 1)


def _pooled(variances: Iterable[_Variance]) -> _Variance:
    components = list(variances)
    freedom = math.fsum(component.freedom for component in components)
    return _Variance(
        math.fsum(component.value * component.freedom for component in components) / freedom,
        freedom,
    )


def _shrunk(by_target: dict[str, _Variance | None], target: str) -> _Variance | None:
    """Return a target's variance, drawn towards the others' where it rests on little."""
    own = by_target.get(target)
    other_variances = [
        variance for name, variance in by_target.items() if name != target and variance is not None
    ]
    if not other_variances:
        return own
    prior = _pooled(other_variances)
    prior = _Variance(prior.value, min(PRIOR, prior.freedom))
    return prior if own is None else _pooled([own, prior])


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
