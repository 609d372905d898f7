"""Shares of a step and differences between ranks, with intervals that allow for like neighbours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.statistics.autocorrelation import cautious, initial_positive_sequence
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.timeline.loop import STEP_KINDS, Loop, StepKind, StepTimes, Stretch
from torchgauge.records.trace.host_delay import LOADING
from torchgauge.visible import one_line

Shares = dict[StepKind, tuple[float, Interval | None]]
_Floats = npt.NDArray[np.float64]

# Independent steps below which no interval is given.
MIN_INDEPENDENT = 6
TAIL = 0.025


def share_of(part: npt.ArrayLike, steps: npt.ArrayLike) -> tuple[float, Interval | None]:
    """Return the share of all steps' time that a part has, with its 95 % interval.

    It is the ratio of two sums: rare long delays count as much as they take. Its error is that of
    the mean of part − share·step, of n/τ′ − 1 degrees of freedom.

    Source: Cochran, "Sampling Techniques", section 2.11 (ratio estimates), with n replaced by n/τ′.
    """
    x, duration = np.asarray(part, np.float64), np.asarray(steps, np.float64)
    total = float(duration.sum())
    if not total:
        return 0.0, None
    share = float(x.sum()) / total
    reach = _reach(x - share * duration)
    if reach is None:
        return share, None
    reach /= float(duration.mean())
    return share, Interval(
        low=max(share - reach, 0.0), high=min(share + reach, 1.0), scope="process"
    )


def with_loader_waits(shares: Shares, loop: Loop) -> Shares:
    """Return the shares with loading as the loaders' own record has it, and the others beside."""
    waited = loop.loading or 0.0
    loading = shares["loading"][0]
    if not (0 < waited < 1 and 0 < loading < 1):
        return shares
    remaining = {kind: scaled(shares[kind], (1 - waited) / (1 - loading)) for kind in shares}
    return remaining | {"loading": scaled(shares["loading"], waited / loading)}


def scaled(share: tuple[float, Interval | None], part: float) -> tuple[float, Interval | None]:
    """Return a part of a share, with its interval."""
    value, interval = share
    if interval is None:
        return value * part, None
    low, high = interval.low * part, min(interval.high * part, 1.0)
    return value * part, Interval(low=low, high=high, scope=interval.scope)


def mean_of(values: npt.ArrayLike, tail: float = TAIL) -> tuple[float, Interval | None]:
    """Return the mean of a series with its interval; None of too few independent values.

    `tail` is the probability that it is beyond one of the ends.
    """
    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    reach = _reach(x - mean, tail)
    return mean, None if reach is None else Interval(
        low=mean - reach, high=mean + reach, scope="process"
    )


def measuring_cost(stretches: Sequence[Stretch], between: float) -> Interval | None:
    """Return the seconds that clocks take a step, `between` two steps too, by steps without."""
    costs = []
    for before, paused, after in zip(stretches, stretches[1:], stretches[2:], strict=False):
        without = paused.durations[1:]
        near = before.durations[-len(without) :], after.durations[1 : 1 + len(without)]
        if paused.phase == "paused" and all(near):
            longer = statistics.mean(map(statistics.median, near)) - statistics.median(without)
            costs.append(longer + between)
    return mean_of(costs)[1] if costs else None


def _reach(deviations: _Floats, tail: float = TAIL) -> float | None:
    """Return half the width of the interval of a mean, from its samples' deviations."""
    n = len(deviations)
    tau = initial_positive_sequence(deviations) if n else 1.0
    if n / tau < MIN_INDEPENDENT:
        return None
    effective = n / cautious(tau, n)
    student = -float(imported("scipy.special").stdtrit(max(effective - 1, 1.0), tail))
    return student * float(deviations.std(ddof=1)) / math.sqrt(effective)


# Of all time without a core: less is not said.
NOTICEABLE = 0.05
# Steps without a profiler that take so much longer than the recorded ones are others.
MUCH_LONGER = 1.25
KIND_NAMES: dict[StepKind, str] = {
    "loading": "loading",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "waiting": "waiting for other processes",
    "collecting": "garbage collection",
    "outside": "outside the model",
}


def steps_by_kind(times: StepTimes, shares: Shares) -> str:
    """Return how long a step is, and what it is in, the largest first."""
    ordered = sorted(STEP_KINDS, key=lambda kind: -shares[kind][0])
    parts = [
        f"{KIND_NAMES[k]} {units.percent(shares[k][0])}" for k in ordered if shares[k][0] > 0.005
    ]
    mean = units.time(mean_duration(times), 3)
    return f"{mean} a step over {len(times.steps):,} steps without a profiler: {', '.join(parts)}."


def further_evidence(loop: Loop, times: StepTimes) -> Iterator[str]:
    """Yield the rates of a step, and how much of it the machine was busy with something else."""
    if (used := loop.utilization) is not None:
        rates = [] if used.mfu is None else [f"MFU {units.percent(used.mfu)}"]
        per_second = {"tokens": used.tokens_per_second, "samples": used.samples_per_second}
        rates += [units.rate(rate, unit) for unit, rate in per_second.items() if rate]
        yield from [", ".join(rates) + "."] if rates else []
    yield from delay_evidence(loop, "allocation")
    yield from _unlike_the_recorded(loop, times)
    if times.preempted is None:
        yield "Time in which the loop's thread had no core is not known, and is in these shares."
        return
    share, _ = share_of(times.preempted, times.durations)
    if share > NOTICEABLE:
        yield (
            f"For {units.percent(share)} of all time the loop's thread had no core: other threads "
            "or programs ran. Shares but that of a loader leave this out."
        )


def _unlike_the_recorded(loop: Loop, times: StepTimes) -> Iterator[str]:
    """Yield that the steps took longer than the recorded ones, whose tree says what they are in."""
    recorded = None if loop.tree is None else loop.tree.root.time
    if recorded and mean_duration(times) > MUCH_LONGER * recorded:
        yield (
            f"The recorded steps took {units.time(recorded, 3)} each, less than the others: what a "
            "step is in may be of the recorded ones alone. Record later ones with --skip."
        )


def delay_evidence(loop: Loop, cause: str) -> tuple[str, ...]:
    """Return a line for each delay of the host that has this cause."""
    return tuple(
        f"{delay.calls:,} × {'next batch' if cause == LOADING else one_line(delay.name)} in "
        f"{delay.steps:,} steps, the longest {units.time(delay.longest, 3)}."
        for delay in loop.host_delays
        if delay.cause == cause
    )


def mean_duration(times: StepTimes) -> float:
    """Return the seconds of a step, the mean."""
    durations = times.durations
    return sum(durations) / len(durations)
