"""How far runs of one target lie apart on one host, from those that the host remembers."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from torchgauge.analyze.noise import workload
from torchgauge.model.environment import Environment
from torchgauge.model.past_run import PastRun
from torchgauge.model.target import TargetDescription

PRIOR = 4.0
"""What other targets of the host tell counts for so many runs of this one at most."""
FEWEST_AT_LEVEL = 3
SHIFT = 3.0
"""A level shift is taken out where that leaves a third of the spread, or less."""
FAR = 6.0
"""Standard deviations (as the median deviation has them) beyond which a run is drawn in."""
FEWEST_TO_DRAW = 5
"""As few runs do not tell an outlier from heavy tails, which an interval has to cover."""
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
    what: TargetDescription,
    where: Environment,
    *,
    parameters: int | None = None,
    staged: bool = False,
    cold_cache: bool = False,
) -> str:
    """Name what is timed and all that makes two of its times incomparable on one machine.

    `parameters` tells models of one class apart; `staged` says that stages around the model are
    timed as well.
    """
    return " ".join(
        (
            workload(what),
            *(() if what.precision_method == "native" else (what.precision_method,)),
            *(() if parameters is None else (f"parameters={parameters}",)),
            *(("staged",) if staged else ()),
            *(("cold",) if cold_cache else ()),
            f"threads={where.settings.threads}",
            f"torch={where.software.torch}",
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
    chosen = _chosen(runs, busy)
    means: dict[str, list[float]] = {}
    inside: dict[str, list[_Variance]] = {}
    for run in chosen:
        logs = [math.log(median) for median in run.medians]
        means.setdefault(run.target, []).append(statistics.fmean(logs))
        if len(logs) > 1:
            variance = _Variance(statistics.variance(logs), len(logs) - 1)
            inside.setdefault(run.target, []).append(variance)
    between = _shrunk({name: _of_runs(logs) for name, logs in means.items()}, target)
    within = _shrunk({name: _pooled(found) for name, found in inside.items()}, target)
    if between is None:
        return None
    return RunSpread(
        between=math.sqrt(between.value),
        runs=between.freedom,
        within=None if within is None else math.sqrt(within.value),
        within_freedom=0.0 if within is None else within.freedom,
    )


def _chosen(runs: Sequence[PastRun], busy: bool | None) -> list[PastRun]:
    usable = [run for run in runs if run.medians and min(run.medians) > 0]
    if busy is None:
        return usable
    alike = [run for run in usable if run.busy == busy]
    names = [run.target for run in alike]
    return alike if busy or len(names) > len(set(names)) else usable


def _of_runs(logs: Sequence[float]) -> _Variance | None:
    """Return the variance of runs about their level, without one level shift and outliers."""
    if len(logs) < 2:
        return None
    whole = _drawn_in(logs)
    at = min(
        range(FEWEST_AT_LEVEL, len(logs) - FEWEST_AT_LEVEL + 1),
        key=lambda at: _levels(logs, at).value,
        default=None,
    )
    if at is None:
        return whole
    levels = _levels(logs, at)
    return levels if levels.value * SHIFT**2 <= whole.value else whole


def _levels(logs: Sequence[float], at: int) -> _Variance:
    return _pooled([_drawn_in(logs[:at]), _drawn_in(logs[at:])])


def _drawn_in(logs: Sequence[float]) -> _Variance:
    """Return the variance with single values far from the median drawn in."""
    centre = statistics.median(logs)
    reach = FAR * NORMAL * statistics.median(abs(log - centre) for log in logs)
    if len(logs) > FEWEST_TO_DRAW and reach > 0:
        logs = [min(max(log, centre - reach), centre + reach) for log in logs]
    return _Variance(statistics.variance(logs), len(logs) - 1)


def _pooled(parts: Iterable[_Variance]) -> _Variance:
    known = list(parts)
    freedom = math.fsum(part.freedom for part in known)
    return _Variance(math.fsum(part.value * part.freedom for part in known) / freedom, freedom)


def _shrunk(by_target: dict[str, _Variance | None], target: str) -> _Variance | None:
    """Return a target's variance, drawn towards the others' where it rests on little."""
    own = by_target.get(target)
    others = [known for name, known in by_target.items() if name != target and known is not None]
    if not others:
        return own
    prior = _pooled(others)
    prior = _Variance(prior.value, min(PRIOR, prior.freedom))
    return prior if own is None else _pooled([own, prior])
