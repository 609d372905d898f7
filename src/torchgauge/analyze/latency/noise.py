"""The noise of a host, and the yardsticks that follow it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from torchgauge.imports import imported
from torchgauge.records.latency.latency import LatencyRun, PastRun, Yardstick
from torchgauge.records.record import Interval
from torchgauge.records.target import TargetDescription

MIN_RUNS = 5
MIN_KINDS = 3
# Student's t at 97.5 %, by degrees of freedom: importing scipy takes a third of a second.
STUDENT_T = {
    2: 4.302653, 3: 3.182446, 4: 2.776445, 5: 2.570582, 6: 2.446912, 7: 2.364624, 8: 2.306004,
    9: 2.262157, 10: 2.228139, 11: 2.200985, 12: 2.178813,
}  # fmt: skip
WAITING = "waiting"
FAULTING = "faulting"
PAGE_FAULT = 1e-6
"""Seconds that a page fault counts for in "faulting"; what one takes is learnt where it is used."""


def yardstick_of(runs: Sequence[LatencyRun]) -> Yardstick | None:
    """Return the yardstick of the processes of one run; None where none of them timed any."""
    kinds = dict.fromkeys(kind for run in runs for kind in run.yardstick)
    times = {
        kind: statistics.median(run.yardstick[kind] for run in runs if kind in run.yardstick)
        for kind in kinds
    }
    return Yardstick(times=times) if times else None


def yardsticks_of(runs: Sequence[LatencyRun]) -> tuple[dict[str, float], ...]:
    """Return the yardstick of each process; none where some timed none."""
    yardsticks = tuple(run.yardstick for run in runs)
    return yardsticks if all(yardsticks) else ()


def with_speed(yardstick: Yardstick, past: Sequence[PastRun], target: str) -> Yardstick:
    """Return the yardstick with the machine's speed relative to its usual one.

    The speed is the geometric mean over the kinds of usual ÷ current time; what is usual is the
    median of the target's earlier runs, or of all of the host's where its own are fewer than five.
    The interval is Student's t over the kinds: they agree where the whole machine got slower. Time
    that is spent waiting for a core is the others', and page faults are the calls' own: neither is
    part of it.
    """
    timed_runs = [run for run in past if run.yardstick]
    own = [run for run in timed_runs if run.target == target]
    usual = own if len(own) >= MIN_RUNS else timed_runs
    if len(usual) < MIN_RUNS:
        return yardstick
    logs = []
    for kind, time in yardstick.times.items():
        times = [run.yardstick[kind] for run in usual if kind in run.yardstick]
        if kind not in (WAITING, FAULTING) and len(times) >= MIN_RUNS and min(*times, time) > 0:
            logs.append(math.log(statistics.median(times) / time))
    if len(logs) < MIN_KINDS:
        return yardstick
    centre = statistics.fmean(logs)
    quantile = STUDENT_T[min(len(logs) - 1, max(STUDENT_T))]
    reach = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return msgspec.structs.replace(
        yardstick,
        speed=math.exp(centre),
        speed_interval=Interval(low=math.exp(centre - reach), high=math.exp(centre + reach)),
        runs=len(usual),
    )


BLOCKS = 10
POWER = 0.90
CONFIDENCE = 0.975
LEAST_SESSIONS = 3


def difference(a: float, b: float, b_again: float, a_again: float) -> float:
    """Return d = ln(median B / median A) of one ABBA block from its four medians in order."""
    return (math.log(b) + math.log(b_again) - math.log(a) - math.log(a_again)) / 2


def deviation(differences: Sequence[float]) -> tuple[float, float]:
    """Return s_d and its upper 95 % confidence bound.

    Both sides are the same build, so the true mean is 0 and all n differences count:
    s_d² = Σd²/n, with n·s_d²/σ² ~ χ²(n).
    """
    chi2 = imported("scipy.stats").chi2

    n = len(differences)
    squares = math.fsum(d * d for d in differences)
    return math.sqrt(squares / n), math.sqrt(squares / float(chi2.ppf(0.05, n)))


def resolvable(s_d: float) -> float:
    """Return the relative change beyond the tolerance that a gate of ten blocks tells.

    From K = ((z₁₋α + z₁₋β)·s_d / ln(1 + δ))² + 2 at α = 2.5 % and 90 % power.
    """
    norm = imported("scipy.stats").norm

    z = float(norm.ppf(CONFIDENCE) + norm.ppf(POWER))
    return math.expm1(z * s_d / math.sqrt(BLOCKS - 2))


def between(sessions: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of log medians between sessions, beyond that within them.

    By the method of moments: the variance of the sessions' means less the mean of their own
    variances over their numbers of processes; 0 where that explains all of it.
    """
    logs = [[math.log(median) for median in session] for session in sessions]
    means = statistics.variance(statistics.fmean(session) for session in logs)
    within = statistics.fmean(statistics.variance(session) / len(session) for session in logs)
    return math.sqrt(max(0.0, means - within))


def workload(target: TargetDescription) -> str:
    """Return the name of a timed target in a host's calibration: the same name, the same work."""
    inputs = " ".join(
        f"{tensor.name}={'x'.join(map(str, tensor.shape))}" for tensor in target.inputs
    )
    step = "training" if target.training else "inference"
    return " ".join(filter(None, (target.spec, inputs, target.device, target.precision, step)))
