"""Trials of a search for the capacity, and what each showed of the goals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.arrivals import WARM_UP
from torchgauge.analyze.serving.left_out import GoalCount, Line, fitted_line
from torchgauge.records.serving.level import LeftOut

Stage = Literal["bracket", "repeat", "confirm"]
Floats = npt.NDArray[np.float64]

# Schedules of which one is chosen, fewer where they have many requests; seeds of trials are nearer.
SCHEDULES, MOST_DRAWN, BETWEEN_SEEDS = 64, 400_000, 100
# Requests of a schedule that shows what lasts; a fuller queue has no such state.
LONG, FULLEST = 200_000, 0.97
# ln(nearness) beyond which a level says no more of which side of the goals it is on.
MOST_SIDE = 2.0


@dataclass(frozen=True)
class Trial:
    """A rate to try: for how many times the usual seconds, and with which seed's schedule."""

    rate: float
    seed: int
    length: float = 1.0
    stage: Stage = "bracket"


@dataclass(frozen=True)
class Attempt:
    """A trial, how far its level was from each goal, and why it is left out, if it is."""

    trial: Trial
    goals: tuple[GoalCount, ...]
    saturated: bool
    verdict: Literal["met", "missed", "unclear"] | None
    left_out: LeftOut = ""

    @property
    def nearness(self) -> float:
        """Above 1 a goal was missed, by the figures alone."""
        if self.saturated:
            return math.inf
        return max((count.nearness for count in self.goals), default=math.inf)

    @property
    def side(self) -> float:
        """ln(nearness), as far as it says more of the side: below 0 the goals were met."""
        nearness = min(max(self.nearness, math.exp(-MOST_SIDE)), math.exp(MOST_SIDE))
        return math.log(nearness)


def first_missed(attempts: Sequence[Attempt]) -> Line | None:
    """Return the line of the goal that is missed at the lowest rate; None where none is known."""
    lines = [
        line
        for counts in zip(*(attempt.goals for attempt in attempts), strict=True)
        if (line := fitted_line(counts)) is not None
    ]
    return min(lines, key=lambda line: (line.interval is None, line.rate), default=None)


def one_by_one(arrivals: Floats, seconds: float) -> Floats:
    """Return the latencies of requests at one worker that takes `seconds` for each."""
    total = seconds * np.arange(1, len(arrivals) + 1)
    latencies: Floats = total + np.maximum.accumulate(arrivals - total + seconds) - arrivals
    return latencies


def typical(
    trial: Trial,
    schedule: Callable[[Trial], Floats],
    answered: float,
    capacity: float,
    targets: Sequence[float | None],
) -> Trial:
    """Return a trial with that seed, of many, whose schedule lets a queue wait as any would.

    How long the queues of some hundred requests are is chance, which a server with one worker and
    constant service shows by simulation. Chosen is the schedule that has as many long waits there
    as one of any length.

    Args:
        trial: Its seed is the first.
        schedule: When the requests of a trial are due.
        answered: Requests per second that the server answers at most.
        capacity: The rate at which the goals seem just met.
        targets: The share of requests that may miss each goal; None of a mean.
    """
    count = max(schedule(trial).size, 1)

    def waits(seed: int, rate: float, requests: int) -> Floats:
        other = dataclasses.replace(trial, seed=seed, rate=rate)
        length = trial.length * requests / count * trial.rate / rate
        due = schedule(dataclasses.replace(other, length=length))
        return one_by_one(due, 1 / answered)[int(WARM_UP * due.size) :]

    usual = waits(trial.seed, min(capacity, FULLEST * answered), LONG)
    limits = [None if target is None else np.quantile(usual, 1 - target) for target in targets]

    def figures(latencies: Floats) -> Floats:
        """Return what the goals limit, in logarithms: shares of long waits, or the mean."""
        half = 0.5 / latencies.size
        shares = [latencies.mean() if q is None else (latencies > q).mean() for q in limits]
        return np.log(np.array(shares) + half)

    number = int(min(max(MOST_DRAWN / count, 1), SCHEDULES))
    seeds = [trial.seed + BETWEEN_SEEDS * index for index in range(number)]
    by_seed = np.array([figures(waits(seed, trial.rate, count)) for seed in seeds])
    lasting = by_seed.mean(axis=0)
    if trial.rate < FULLEST * answered:
        lasting = figures(waits(trial.seed, trial.rate, LONG))
    off = np.abs(by_seed - lasting).sum(axis=1)
    return dataclasses.replace(trial, seed=seeds[int(off.argmin())])
