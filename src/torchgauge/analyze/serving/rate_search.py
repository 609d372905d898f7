"""The highest rate within goals: which rate to try next, and what the tries show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchgauge import units
from torchgauge.analyze.serving.capacity_fit import GoalCount, fitted_rate, goal_count
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Capacity

Stage = Literal["bracket", "repeat", "confirm"]
# Where the rates that seem to meet and to miss the goals are this close, repetitions begin.
CLOSE = 1.08
STRIDE = 2.0
BRACKET_LEVELS, FEWEST_REPEATS, MOST_REPEATS = 14, 12, 30
# Repetitions are spread around the rate that seems to be the capacity, to show the slope.
SPREAD = (0.08, -0.1, 0.0, 0.12, -0.06, 0.04)
# Of the capacity; the interval reaches as far on both sides.
PRECISION = 0.015
# A level far from its goal says nothing of where it is just met.
NEAR_RATE, NEAR_GOAL = 1.25, 20.0
CONFIRM_LENGTH = 4.0


@dataclass(frozen=True)
class Trial:
    """A rate to try: for how many times the usual seconds, and with which seed's schedule."""

    rate: float
    seed: int
    length: float = 1.0
    stage: Stage = "bracket"


@dataclass(frozen=True)
class _Attempt:
    """A trial, and how far its level was from each goal."""

    trial: Trial
    goals: tuple[GoalCount, ...]
    saturated: bool

    @property
    def nearness(self) -> float:
        """Above 1 a goal was missed, by the figures alone."""
        if self.saturated:
            return math.inf
        return max((count.nearness for count in self.goals), default=math.inf)


class RateSearch:
    """Brackets the capacity, repeats levels around it, and confirms what they show.

    Every level has a schedule of its own, so that they are independent. `next` names a trial,
    `add` takes its level, until `next` returns None.

    Args:
        first_rate: Where to begin, such as a share of what the server answers at most.
        highest: No rate above it is tried: what the client can send.
        seed: Of the first schedule.
    """

    def __init__(self, first_rate: float, *, highest: float = math.inf, seed: int = 0) -> None:
        self._first = min(first_rate, highest)
        self._highest = highest
        self._seed = seed
        self._attempts: list[_Attempt] = []
        self._reason = ""

    def next(self) -> Trial | None:
        """Return what to try next; None at the end of the search."""
        if not self._attempts:
            return self._trial(self._first)
        stage = self._attempts[-1].trial.stage
        if stage == "confirm":
            return None
        if stage == "bracket":
            trial = self._bracket()
            if trial is not None or self._reason:
                return trial
        return self._repeat()

    def add(self, trial: Trial, level: Level) -> None:
        """Take the level of a trial."""
        goals = tuple(goal_count(level, result.goal) for result in level.goals)
        saturated = level.saturation is not None and bool(level.saturation.saturated)
        self._attempts.append(_Attempt(trial, goals, saturated))

    def capacity(self, *, interrupted: bool = False) -> Capacity:
        """Return what the tries so far show."""
        reason = "The search was interrupted." if interrupted else self._reason
        fit = self._fit()
        if fit is None:
            low, high = self._bounds()
            above = high is None and low is not None
            interval = None
            if low is not None and high is not None:
                interval = Interval(low=low.trial.rate, high=high.trial.rate, scope="process")
            return Capacity(
                rate=None if low is None else low.trial.rate,
                interval=interval,
                above_all_tried=above,
                reason=reason or "Too few levels show where the goals are just met.",
            )
        _, interval = fit
        last = self._attempts[-1]
        confirmed = last.nearness <= 1 if last.trial.stage == "confirm" else None
        return Capacity(
            rate=interval.low,
            interval=interval,
            reason=reason or self._ending(interval),
            confirmed=confirmed,
        )

    def _ending(self, interval: Interval) -> str:
        levels = sum(attempt.trial.stage == "repeat" for attempt in self._attempts)
        share = (interval.high / interval.low - 1) / 2
        text = f"{levels} levels around it show it to {units.significant(share * 100)} %."
        if share > PRECISION * 1.2:
            text += " Longer levels narrow the interval."
        return text

    def _bracket(self) -> Trial | None:
        low, high = self._bounds()
        count = len(self._attempts)
        if low is None and high is not None and high.trial.rate < self._first * 1e-4:
            self._reason = "Even a ten-thousandth of what the server answers missed the goals."
        elif high is None and low is not None and low.trial.rate >= self._highest:
            self._reason = "The highest rate that can be sent met the goals."
        elif count >= BRACKET_LEVELS and (low is None or high is None):
            self._reason = "The search ended at its limit of levels."
        if self._reason:
            return None
        if low is None or high is None:
            rate = low.trial.rate * STRIDE if low else self._lowest() / STRIDE
            return self._trial(min(rate, self._highest))
        if count >= BRACKET_LEVELS or high.trial.rate / low.trial.rate <= CLOSE:
            return None
        return self._trial(math.sqrt(low.trial.rate * high.trial.rate))

    def _repeat(self) -> Trial | None:
        repeats = sum(attempt.trial.stage == "repeat" for attempt in self._attempts)
        fit = self._fit()
        if fit is not None and repeats >= FEWEST_REPEATS:
            rate, interval = fit
            precise = (interval.high - interval.low) / 2 <= PRECISION * rate
            if precise or repeats >= MOST_REPEATS:
                return self._trial(interval.low, "confirm", CONFIRM_LENGTH)
        if repeats >= MOST_REPEATS:
            return None
        center = self._center() if fit is None else fit[0]
        return self._trial(center * (1 + SPREAD[repeats % len(SPREAD)]), "repeat")

    def _fit(self) -> tuple[float, Interval] | None:
        """Return the rate at which the first of the goals is just met, with its interval."""
        center = self._center()
        if not center:
            return None
        near = [
            attempt
            for attempt in self._attempts
            if 1 / NEAR_RATE <= attempt.trial.rate / center <= NEAR_RATE
            and attempt.trial.stage != "confirm"
            and attempt.nearness < NEAR_GOAL
        ]
        if not near:
            return None
        fits = [
            fit
            for counts in zip(*(attempt.goals for attempt in near), strict=True)
            if (fit := fitted_rate(counts)) is not None
        ]
        return min(fits, key=lambda fit: fit[0], default=None)

    def _center(self) -> float:
        """Return the middle of the rates that seem to meet and to miss; 0 without both.

        Of the first levels alone, so that what is fitted does not depend on what the fit says.
        """
        low, high = self._bounds("bracket")
        if low is None or high is None:
            return 0.0
        return math.sqrt(low.trial.rate * high.trial.rate)

    def _bounds(self, stage: Stage | None = None) -> tuple[_Attempt | None, _Attempt | None]:
        """Return the highest rate that seems to meet the goals, below the lowest that does not."""
        attempts = sorted(
            (t for t in self._attempts if stage is None or t.trial.stage == stage),
            key=lambda t: t.trial.rate,
        )
        high = next((t for t in attempts if t.nearness > 1), None)
        below = [t for t in attempts if high is None or t.trial.rate < high.trial.rate]
        return (below[-1] if below else None), high

    def _lowest(self) -> float:
        return min(attempt.trial.rate for attempt in self._attempts)

    def _trial(self, rate: float, stage: Stage = "bracket", length: float = 1.0) -> Trial:
        return Trial(min(rate, self._highest), self._seed + len(self._attempts), length, stage)


def capacity_of_levels(levels: Sequence[Level]) -> Capacity | None:
    """Return what levels at given rates show of the capacity; None without goals or rates."""
    by_rate = sorted(
        ((level.arrivals.rate, level) for level in levels if level.arrivals.rate and level.goals),
        key=lambda pair: pair[0],
    )
    if not by_rate:
        return None
    missed = [rate for rate, level in by_rate if level.verdict == "missed"]
    lowest = min(missed, default=math.inf)
    met = [rate for rate, level in by_rate if level.verdict == "met" and rate < lowest]
    if not met:
        return Capacity(reason="No rate that was tried met the goals in its whole interval.")
    interval = Interval(low=met[-1], high=lowest, scope="process") if missed else None
    above = not missed and met[-1] == by_rate[-1][0]
    reason = (
        "The highest rate that was tried met the goals."
        if above
        else "Of the rates that were given."
    )
    return Capacity(rate=met[-1], interval=interval, above_all_tried=above, reason=reason)
