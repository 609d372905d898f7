"""The spread between runs of one target on one host, from the runs that the host remembers."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from torchgauge.analyze.latency.noise import workload
from torchgauge.records.environment import Environment
from torchgauge.records.latency.past_run import PastRun
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
