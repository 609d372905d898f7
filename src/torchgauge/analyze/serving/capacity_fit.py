"""The rate at which a goal is just met: a fit of how often requests miss it against the rate.

The share of requests over a limit is unbiased in a level of any length, where a percentile of few
requests is too low; over a small range of rates its logarithm is a straight line. Levels with
schedules of their own are independent, so that the scatter between them is what chance does,
however much the requests of one level resemble each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.serving.goal import Goal
from torchgauge.records.serving.level import Level

CONFIDENCE = 0.975
FEWEST_LEVELS = 5
ROUNDS = 30


@dataclass(frozen=True)
class GoalCount:
    """A goal at a level: how many requests were beyond its limit, and how many may be.

    `over` of `count` requests were; the share `target` may be. Of a goal on the mean `over` is the
    sum of the times, and `target` the limit.
    """

    rate: float
    count: int
    over: float
    target: float

    @property
    def nearness(self) -> float:
        """How far the goal is from its limit: above 1 it is missed."""
        return self.over / self.count / self.target if self.count else math.inf


def goal_count(level: Level, goal: Goal) -> GoalCount:
    """Count the requests of a level's steady window that are beyond a goal's limit."""
    columns = RequestTimes(level.requests)
    inside = (columns.scheduled >= level.window[0]) & (columns.scheduled < level.window[1])
    if goal.metric == "errors":
        times: npt.NDArray[np.float64] = np.where(columns.done, 0.0, np.inf)[inside]
    elif goal.metric == "itl":
        times = columns.gaps[inside[columns.gap_owners]]
    else:
        times = getattr(columns, goal.metric)[inside]
    times = times[~np.isnan(times)]
    rate = level.arrivals.rate or 0.0
    if goal.metric == "errors":
        return GoalCount(rate, times.size, float(np.isinf(times).sum()), goal.limit)
    if goal.fraction is None:
        return GoalCount(rate, times.size, float(times.sum()), goal.limit)
    return GoalCount(rate, times.size, float((times >= goal.limit).sum()), 1 - goal.fraction)


def fitted_rate(counts: Sequence[GoalCount]) -> tuple[float, Interval] | None:
    """Return the rate at which the goal is just met, with its 95 % interval.

    A Poisson regression, ln(share) = a + b·ln(rate), whose variance is that of the residuals. None
    where the levels are too few, or show no growth with the rate.

    Args:
        counts: Of levels with independent schedules, at rates not far from each other.
    """
    used = [count for count in counts if count.count and math.isfinite(count.over)]
    if len(used) < FEWEST_LEVELS or sum(count.over for count in used) <= 0:
        return None
    middle = math.exp(sum(math.log(count.rate) for count in used) / len(used))
    x = np.array([math.log(count.rate / middle) for count in used])
    expected = np.array([count.count * count.target for count in used])  # at the goal itself
    over = np.array([count.over for count in used])
    fit = _regression(x, expected, over)
    if fit is None:
        return None
    (level, slope), covariance = fit
    student = float(imported("scipy.special").stdtrit(len(used) - 2, CONFIDENCE))
    # Fieller's interval of −a/b.
    va, vab, vb = covariance[0, 0], covariance[0, 1], covariance[1, 1]
    t2 = student**2
    leading = slope**2 - t2 * vb
    if slope <= 0 or leading <= 0:
        return None
    half = level * slope - t2 * vab
    root = half**2 - leading * (level**2 - t2 * va)
    if root < 0:
        return None
    low, high = ((-half - math.sqrt(root)) / leading, (-half + math.sqrt(root)) / leading)
    crossing = -level / slope
    interval = Interval(low=middle * math.exp(low), high=middle * math.exp(high), scope="process")
    return middle * math.exp(crossing), interval


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
    dispersion = float((((over - mean) ** 2) / mean).sum()) / (len(x) - 2)
    covariance = np.linalg.inv(design.T @ (design * mean[:, None])) * dispersion
    return (float(parameters[0]), float(parameters[1])), covariance
