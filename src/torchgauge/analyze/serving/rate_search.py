"""The highest rate within goals: which rate to try next, and what the tries show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Capacity

Stage = Literal["bracket", "candidate", "confirm", "above"]
# A level of a candidate is longer than one that only finds the way there.
LONGER = 4.0
# Where the rates that seem to meet and to miss the goals are this close, candidates begin.
CLOSE = 1.05
STEP_DOWN, STEP_UP = 0.98, 1.04
BRACKET_TRIALS, CANDIDATES = 14, 8
# Above this multiple of the last one a rate is not tried at once.
STRIDE = 2.0


@dataclass(frozen=True)
class Trial:
    """A rate to try: for how many times the usual seconds, and with which seed's schedule."""

    rate: float
    length: float = 1.0
    seed: int = 0
    stage: Stage = "bracket"


class RateSearch:
    """Brackets the capacity with short levels, then shows it with long ones.

    Short levels share a schedule, so that they differ by their rate alone; each long one has a
    schedule of its own. `next` names a trial, `add` takes its level, until `next` returns None.

    Args:
        first_rate: Where to begin, such as a share of what the server answers at most.
        highest: No rate above it is tried: what the client can send.
    """

    def __init__(self, first_rate: float, *, highest: float = math.inf, seed: int = 0) -> None:
        self._first = min(first_rate, highest)
        self._highest = highest
        self._seed = seed
        self._levels: list[tuple[Trial, Level]] = []
        self._confirmed: bool | None = None
        self._reason = ""

    def next(self) -> Trial | None:
        """Return what to try next; None at the end of the search."""
        if not self._levels:
            return Trial(self._first, seed=self._seed)
        last, level = self._levels[-1]
        if last.stage == "bracket":
            return self._bracket()
        if last.stage == "candidate":
            return self._long(last.rate, "confirm") if _met(level) else self._lower(last.rate)
        if last.stage == "confirm":
            self._confirmed = _met(level)
            if self._confirmed:
                return self._long(last.rate * STEP_UP, "above")
            return self._lower(last.rate)
        self._reason = "It was shown by a level of its own, and by a second one."
        return None

    def add(self, trial: Trial, level: Level) -> None:
        """Take the level of a trial."""
        self._levels.append((trial, level))

    def capacity(self, *, interrupted: bool = False) -> Capacity:
        """Return what the tries so far show."""
        tried = sorted(self._levels, key=lambda pair: pair[0].rate)
        missed = [trial.rate for trial, level in tried if level.verdict == "missed"]
        met = [
            trial.rate
            for trial, level in tried
            if _met(level) and trial.rate < min(missed, default=math.inf)
        ]
        reason = "The search was interrupted." if interrupted else self._reason
        if not met:
            return Capacity(reason=reason or "No rate that was tried met the goals.")
        rate, confirmed = met[-1], self._confirmed
        interval = Interval(low=rate, high=min(missed), scope="process") if missed else None
        if confirmed and rate > self._last("confirm"):
            confirmed = None
        return Capacity(
            rate=rate,
            interval=interval,
            above_all_tried=not missed and rate == tried[-1][0].rate,
            reason=reason or "The search ended at its limit of levels.",
            confirmed=confirmed,
        )

    def _bracket(self) -> Trial | None:
        low, high = self._bounds()
        if low is None and self._levels[-1][0].rate < self._first * 1e-4:
            self._reason = "Even a ten-thousandth of what the server answers missed the goals."
            return None
        if high is None and low is not None and low[0] >= self._highest:
            self._reason = "The highest rate that can be sent met the goals."
            return None
        if len(self._levels) >= BRACKET_TRIALS and low is None:
            return None
        if low and high and (high[0] / low[0] <= CLOSE or len(self._levels) >= BRACKET_TRIALS):
            return self._long(crossing(low, high) * (1 + STEP_DOWN) / 2, "candidate")
        if low and high:
            tried = crossing(low, high)
            # Not where it is sure to say nothing new: at least a tenth of the way from an end.
            share = min(max(math.log(tried / low[0]) / math.log(high[0] / low[0]), 0.1), 0.9)
            return Trial(low[0] * (high[0] / low[0]) ** share, seed=self._seed)
        rate = low[0] * STRIDE if low else high[0] / STRIDE if high else self._first
        return Trial(min(rate, self._highest), seed=self._seed)

    def _bounds(self) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        """Return the highest rate that seems to meet the goals below the lowest that seems not to.

        Each with how far it is from them: the highest value over its limit.
        """
        points = sorted((trial.rate, nearness(level)) for trial, level in self._levels)
        high = next(((rate, near) for rate, near in points if near >= 1), None)
        below = [(rate, near) for rate, near in points if near < 1]
        if high is not None:
            below = [(rate, near) for rate, near in below if rate < high[0]]
        return (below[-1] if below else None), high

    def _long(self, rate: float, stage: Stage) -> Trial:
        return Trial(min(rate, self._highest), LONGER, self._seed + len(self._levels), stage)

    def _lower(self, rate: float) -> Trial | None:
        if sum(trial.stage == "candidate" for trial, _ in self._levels) >= CANDIDATES:
            return None
        # A level that missed by far says by how much to go down.
        near = nearness(self._levels[-1][1])
        step = STEP_DOWN if near < 1.5 else STEP_DOWN**2
        return self._long(rate * step, "candidate")

    def _last(self, stage: Stage) -> float:
        rates = [trial.rate for trial, _ in self._levels if trial.stage == stage]
        return rates[-1] if rates else 0.0


def nearness(level: Level) -> float:
    """Return the highest of the values over their limits; infinite where one is out of reach."""
    shares = []
    for result in level.goals:
        saturated = level.saturation is not None and bool(level.saturation.saturated)
        if result.value is None or (saturated and result.verdict == "missed"):
            return math.inf
        shares.append(result.value / result.goal.limit)
    return max(shares, default=math.inf)


def crossing(low: tuple[float, float], high: tuple[float, float]) -> float:
    """Return the rate between two at which the nearness is 1: a waiting time grows exponentially.

    Where one end has no value, the mean of the rates' logarithms.
    """
    (low_rate, low_near), (high_rate, high_near) = low, high
    if not 0 < low_near < high_near < math.inf:
        return math.sqrt(low_rate * high_rate)
    share = -math.log(low_near) / math.log(high_near / low_near)
    return low_rate * (high_rate / low_rate) ** share


def capacity_of_levels(levels: Sequence[Level]) -> Capacity | None:
    """Return what levels at given rates show of the capacity; None without goals or rates."""
    tried = sorted(
        ((level.arrivals.rate, level) for level in levels if level.arrivals.rate and level.goals),
        key=lambda pair: pair[0] or 0.0,
    )
    if not tried:
        return None
    missed = [rate for rate, level in tried if rate and level.verdict == "missed"]
    lowest = min(missed, default=math.inf)
    met = [rate for rate, level in tried if rate and _met(level) and rate < lowest]
    if not met:
        return Capacity(reason="No rate that was tried surely met the goals.")
    interval = Interval(low=met[-1], high=lowest, scope="process") if missed else None
    above = not missed and met[-1] == tried[-1][0]
    reason = "The highest rate that was tried met the goals." if above else "Of the rates tried."
    return Capacity(rate=met[-1], interval=interval, above_all_tried=above, reason=reason)


def _met(level: Level) -> bool:
    return level.verdict == "met"
