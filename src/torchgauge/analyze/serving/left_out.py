"""Why a level says nothing of the server: its client was late, or the server still warmed up.

A search that counted such levels would report the client's limit, or that of the server's first
seconds, as its capacity.

The rate at which a goal is just met: a fit of how often requests miss it against the rate.

The share of requests over a limit is unbiased in a level of any length, where a percentile of few
requests is too low; over a small range of rates its logarithm is a straight line (of
M/M/1 over any range). Levels with
schedules of their own are independent, so that the scatter between them is what chance does,
however much the requests of one level resemble each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.request_times import RequestTimes, in_window
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import LeftOut, Level
from torchgauge.records.serving.requests import Capacity, Goal

# Lateness is part of every latency: beyond this share of a goal's limit it decides about the goal.
MOST_LATENESS = 0.1
FEWEST_REQUESTS = 500
# The quick tenth hardly depends on the queue, which may begin long and end short by chance. Of the
# first requests as good as none is as quick, and theirs take longer by this.
QUICK, AS_GOOD_AS_NONE = 0.1, 0.02
FALL = 1.25


def left_out(level: Level, *, is_first: bool) -> LeftOut:
    """Return why a search leaves a level out; empty where it does not.

    Args:
        level: It, with its goals.
        is_first: Whether it is one of the first levels, at which a server may be cold.
    """
    if _client_was_late(level):
        return "late client"
    return "warm-up" if is_first and _warms_up(level) else ""


def _client_was_late(level: Level) -> bool:
    client = level.client
    if client is None or not client.limited:
        return False
    limits = [result.goal.limit for result in level.goals if result.goal.metric != "errors"]
    return client.open_files is not None or (client.lateness_p99 or math.inf) > MOST_LATENESS * min(
        limits, default=0.0
    )


def _warms_up(level: Level) -> bool:
    """Return whether the quick answers of the first fifth were slower than those of the last half.

    From sent to answered; few requests do not show it.
    """
    columns = RequestTimes(level.requests)
    inside = columns.done & in_window(columns, level.window)
    service = columns.service[inside]
    service = service[np.isfinite(service)]
    if service.size < FEWEST_REQUESTS:
        return False
    first, last = service[: service.size // 5], service[service.size // 2 :]
    quick = float(np.quantile(last, QUICK))
    slower = float(np.quantile(first, QUICK)) > FALL * quick
    return slower and float((first <= quick).mean()) < AS_GOOD_AS_NONE


# Levels are skewed: most see too few long queues, and then seem to agree too well. The lower end,
# the rate that is said to meet the goals, reaches further (benchmarks/load_search.py).
LOWER_TAIL, UPPER_TAIL = 0.01, 0.025
# Levels that hold fewer independent requests than this begin idle for too much of their time.
FEWEST_INDEPENDENT = 15.0
FEWEST_POINTS, FEWEST_LEVELS = 3, 6
ROUNDS = 30
POWERS = (1, 2, 4)
# Another power than the first has to leave less than this of the scatter, which chance seldom does.
BY_CHANCE = 0.35


@dataclass(frozen=True)
class GoalCount:
    """A goal at a level: how many requests were beyond its limit, and how many may be.

    `rate` is that of the requests that were due: by how much chance made it more or less than was
    asked for explains part of the scatter. `over` of `count` requests were beyond the limit; the
    share `target` may be. Of a goal on the mean, which `counts` no requests, `over` is the sum of
    the times, and `target` the limit. `correlation` is how many requests in a row are worth one
    independent one.
    """

    rate: float
    count: int
    over: float
    target: float
    counts: bool = True
    correlation: float = 1.0

    @property
    def nearness(self) -> float:
        """How far the goal is from its limit: above 1 it is missed."""
        return self.over / self.count / self.target if self.count else math.inf


def goal_count(level: Level, goal: Goal) -> GoalCount:
    """Count the requests of a level's steady window that are beyond a goal's limit."""
    columns = RequestTimes(level.requests)
    inside = in_window(columns, level.window)
    if goal.metric == "errors":
        times: npt.NDArray[np.float64] = np.where(columns.done, 0.0, np.inf)[inside]
    else:
        times = columns.times_of(goal.metric, inside)
    over, target = float((times >= goal.limit).sum()), goal.limit
    if goal.fraction is not None:
        target = 1 - goal.fraction
    elif goal.metric != "errors":
        over = float(times.sum())
    distribution = None if goal.metric == "errors" else getattr(level, goal.metric)
    length = level.window[1] - level.window[0]
    return GoalCount(
        float(inside.sum()) / length if length > 0 else 0.0,
        times.size,
        over,
        target,
        counts=goal.metric == "errors" or goal.fraction is not None,
        correlation=1.0 if distribution is None else distribution.correlation or 1.0,
    )


@dataclass(frozen=True)
class Line:
    """ln(share beyond the limit) against the rate: where it meets the goal, and how steeply.

    `slope` is per rate as a share of `rate`, `interval` the 95 % interval of `rate`; None where the
    levels are too few, too short, or too scattered.
    """

    rate: float
    slope: float
    interval: Interval | None

    def widened(self, share: float) -> Line:
        """Return it with an interval that reaches further, by an independent error of the rate."""
        if self.interval is None:
            return self
        error = share * self.rate
        low = self.rate - math.hypot(self.rate - self.interval.low, error)
        high = self.rate + math.hypot(self.interval.high - self.rate, error)
        return replace(self, interval=Interval(low=low, high=high, scope="process"))


def independent(counts: Sequence[GoalCount]) -> float:
    """Return how many independent requests a level holds on average."""
    return sum(count.count for count in counts) / sum(count.correlation for count in counts)


def fitted_line(counts: Sequence[GoalCount]) -> Line | None:
    """Return the rate at which the goal is just met, with its 95 % interval.

    A Poisson regression, ln(share) = a + b·rate, whose variance is that of the residuals; of a mean
    its inverse is the straight line. None
    where fewer than three levels show anything, or they show no growth with the rate.

    Args:
        counts: Of levels with independent schedules, at rates not far from each other.
    """
    used = [count for count in counts if count.count and math.isfinite(count.over)]
    if len(used) < FEWEST_POINTS or sum(count.over for count in used) <= 0:
        return None
    middle = sum(count.rate for count in used) / len(used)
    x = np.array([count.rate / middle - 1 for count in used])
    expected = np.array([count.count * count.target for count in used])  # at the goal itself
    over = np.array([count.over for count in used])
    fit = _regression(x, expected, over) if used[0].counts else _inverse_line(x, expected, over)
    if fit is None:
        return None
    (level, slope), covariance = fit
    crossing = 1 - level / slope if slope > 0 else 0.0
    if crossing <= 0:
        return None
    is_known = len(used) >= FEWEST_LEVELS and independent(used) >= FEWEST_INDEPENDENT
    ends = _crossing(level, slope, covariance, len(used)) if is_known else None
    interval = None
    if ends is not None:
        low, high = (middle * (1 + end) for end in ends)
        if low > middle / 2:  # farther off the line does not hold
            interval = Interval(low=low, high=high, scope="process")
    return Line(middle * crossing, slope * crossing, interval)


def _crossing(
    level: float, slope: float, covariance: npt.NDArray[np.float64], count: int
) -> tuple[float, float] | None:
    """Return Fieller's interval of −level/slope; None where it is unbounded."""
    va, vab, vb = covariance[0, 0], covariance[0, 1], covariance[1, 1]
    ends = []
    for tail, sign in ((LOWER_TAIL, -1), (UPPER_TAIL, 1)):
        t2 = float(imported("scipy.special").stdtrit(count - 2, tail)) ** 2
        leading = slope**2 - t2 * vb
        half = level * slope - t2 * vab
        root = half**2 - leading * (level**2 - t2 * va)
        if leading <= 0 or root < -1e-9 * half**2:
            return None
        ends.append(float((-half + sign * math.sqrt(max(root, 0.0))) / leading))
    return ends[0], ends[1]


def _regression(
    x: npt.NDArray[np.float64], expected: npt.NDArray[np.float64], over: npt.NDArray[np.float64]
) -> tuple[tuple[float, float], npt.NDArray[np.float64]] | None:
    """Fit ln(over / expected) = a + b·x by iterated weights; None where it does not converge."""
    design = np.stack([np.ones_like(x), x], axis=1)
    ratio = over.sum() / expected.sum()
    parameters = np.array([math.log(ratio), 1.0])
    for _ in range(ROUNDS):
        linear = np.clip(design @ parameters, -30, 30)
        mean = expected * np.exp(linear)
        information = design.T @ (design * mean[:, None])
        try:
            change = np.linalg.solve(information, design.T @ (over - mean))
        except np.linalg.LinAlgError:
            return None
        parameters = parameters + np.clip(change, -2, 2)
        if np.abs(change).max() < 1e-9:
            break
    else:
        return None
    mean = expected * np.exp(design @ parameters)
    dispersion = float((((over - mean) ** 2) / mean).sum()) / max(len(x) - 2, 1)
    covariance = np.linalg.inv(design.T @ (design * mean[:, None])) * dispersion
    return (float(parameters[0]), float(parameters[1])), covariance


def _inverse_line(
    x: npt.NDArray[np.float64], expected: npt.NDArray[np.float64], over: npt.NDArray[np.float64]
) -> tuple[tuple[float, float], npt.NDArray[np.float64]] | None:
    """Fit 1 − (limit / mean)^power = a + b·x, with power 1 where no other is far nearer to a line.

    The mean of a queue of single requests goes as 1 / (what is left of its capacity). A
    server that batches hides its load in larger batches for long: its mean turns more sharply.
    """
    design = np.stack([np.ones_like(x), x], axis=1)
    information = design.T @ (design * expected[:, None])
    try:
        inverse = np.linalg.inv(information)
    except np.linalg.LinAlgError:
        return None
    fits = []
    for power in POWERS:
        values = 1 - (expected / over) ** power
        parameters = inverse @ design.T @ (expected * values)
        residuals = values - design @ parameters
        dispersion = float((expected * residuals**2).sum()) / max(len(x) - 2, 1)
        scatter = dispersion / parameters[1] ** 2 if parameters[1] else math.inf  # of the rate
        fits.append((scatter, (float(parameters[0]), float(parameters[1])), inverse * dispersion))
    best = min(fits, key=lambda fit: fit[0])
    _, line, covariance = best if best[0] < BY_CHANCE * fits[0][0] else fits[0]
    return line, np.asarray(covariance, dtype=np.float64)


def capacity_of_levels(levels: Sequence[Level]) -> Capacity | None:
    """Return what levels at given rates show of the capacity; None without goals or rates."""
    judged = [level for level in levels if level.arrivals.rate and level.goals]
    if not judged:
        return None
    used = [level for level in judged if left_out(level, is_first=False) != "late client"]
    late = len(judged) - len(used)
    omitted = f" Levels left out, since the client was late: {late}." if late else ""
    by_rate = sorted(((level.arrivals.rate or 0.0, level) for level in used), key=lambda p: p[0])
    missed = [rate for rate, level in by_rate if level.verdict == "missed"]
    lowest = min(missed, default=math.inf)
    met = [rate for rate, level in by_rate if level.verdict == "met" and rate < lowest]
    if not met:
        reason = "No rate that was tried met the goals in its whole interval."
        return Capacity(reason=reason + omitted)
    interval = Interval(low=met[-1], high=lowest, scope="process") if missed else None
    above = not missed and met[-1] == by_rate[-1][0]
    reason = "Of the rates that were given."
    if above:
        reason = "The highest rate that was tried met the goals."
    elif not missed:
        reason = "Whether higher rates met the goals is unclear."
    return Capacity(rate=met[-1], interval=interval, above_all_tried=above, reason=reason + omitted)
