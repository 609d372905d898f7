"""The highest rate within goals: which rate to try next, and what the tries show."""

from __future__ import annotations

import math
from collections.abc import Callable

from torchgauge import units
from torchgauge.analyze.serving.left_out import (
    FEWEST_INDEPENDENT,
    Line,
    goal_count,
    independent,
    left_out,
)
from torchgauge.analyze.serving.rate_trials import (
    Attempt,
    Floats,
    Stage,
    Trial,
    first_missed,
    typical,
)
from torchgauge.records.record import Interval
from torchgauge.records.serving.level import LeftOut, Level
from torchgauge.records.serving.serving import Capacity

MOST_LEVELS, BRACKET_LEVELS, FEWEST_REPEATS = 16, 8, 6
# Of the usual length: what all levels take together at most where the search chooses their lengths.
MOST_LENGTH = 10.8
SHORTEST_BRACKET, LONGEST_BRACKET, USUAL_TARGET = 0.2, 0.8, 0.05
# A short level still shows which side of the goal it is on, if this many requests may miss it.
BRACKET_MISSES = 5
# What a closed loop answers is seldom exceeded: the first rate is below it, this far above.
FIRST_SHARE, CEILING = 0.6, 1.15
STRIDE = 2.0
# Below and above the goal, how far levels may be from it (of what may miss it) to show the slope;
# beyond these the bracket is halved, down to CLOSE.
INFORMATIVE = (0.1, 6.0)
CLOSE = 1.015
# Repetitions are spread around the rate that seems to be the capacity: in ln(share of misses).
SPREAD = (0.8, -0.7, 0.1, 1.0, -1.0, 0.4, -0.3, 0.7)
# Farther levels say nothing of where the goal is just met.
WIDEST = 1.6
# ln(share of misses) per share of the rate: of hardly any queue to one at its limit.
SLOPES, USUAL_SLOPE = (1.5, 80.0), 8.0
# Where the share hardly depends on the rate, the spread is bounded: a line holds nearby only.
LEAST_SLOPE = 10.0
# Of the capacity; the interval reaches as far on both sides.
PRECISION = 0.015
# A schedule that is typical for one worker is by so much another rate for other servers, at most.
OTHER_SERVERS = 0.01
# A client that is late twice at a rate is asked for this share of it, or what it could send.
SENDABLE = 0.8
# Where it is late at any rate, the machine is too busy.
MOST_LATE = 4
# A server may be cold in the first levels; later ones are kept, whatever they show.
FIRST_LEVELS = 3


class RateSearch:
    """Brackets the capacity, repeats levels around it, and tries what they show once more.

    Every level has a schedule of its own, so that they are independent; of many it is the one that
    is most like all others (`typical`). `next` names a trial, `add` takes its level, until `next`
    returns None. Levels at which the client was late, or the server still warmed up, are left out;
    they count as levels of the budget.

    Args:
        answered: Requests per second that the server answers at most.
        schedule: When the requests of a trial are due.
        highest: No rate above it is tried.
        seed: Of the first schedule.
        usual_seconds: The usual length of a level; None: all have it.
    """

    def __init__(
        self,
        answered: float,
        schedule: Callable[[Trial], Floats],
        *,
        highest: float = math.inf,
        seed: int = 0,
        usual_seconds: float | None = None,
    ) -> None:
        self._answered = answered
        self._schedule = schedule
        self._highest = highest
        self._seed = seed
        self._usual_seconds = usual_seconds
        self._attempts: list[Attempt] = []
        self._reason = ""

    @property
    def most_length(self) -> float:
        """How many times the usual length all levels take together at most."""
        return float(MOST_LEVELS) if self._usual_seconds is None else MOST_LENGTH

    @property
    def first_rate(self) -> float:
        """Where the search begins."""
        return min(FIRST_SHARE * self._answered, self._highest)

    def next(self) -> Trial | None:
        """Return what to try next; None at the end of the search."""
        if not self._attempts:
            return self._trial(self.first_rate)
        last = self._attempts[-1]
        if self._reason or last.trial.stage == "confirm" or len(self._attempts) >= MOST_LEVELS:
            return None
        if last.trial.stage == "bracket":
            if last.left_out and last.trial.rate <= self._highest:
                return self._trial(last.trial.rate)
            trial = self._bracket()
            if trial is not None or self._reason:
                return trial
        return self._repeat()

    def add(self, trial: Trial, level: Level) -> LeftOut:
        """Take the level of a trial, and return why it is left out, if it is."""
        goals = tuple(goal_count(level, result.goal) for result in level.goals)
        for result, count in zip(level.goals, goals, strict=True):
            if result.goal.metric in ("ttft", "itl", "tpot") and not count.count:
                self._reason = result.reason  # no level will show it
        saturated = level.saturation is not None and bool(level.saturation.saturated)
        cause = left_out(level, is_first=len(self._attempts) < FIRST_LEVELS)
        if cause == "late client" and self._attempts and self._attempts[-1].left_out == cause:
            sent = max((attempt.trial.rate for attempt in self._used()), default=0.0)
            self._highest = min(self._highest, max(SENDABLE * trial.rate, sent))
        self._attempts.append(Attempt(trial, goals, saturated, level.verdict, cause))
        return cause

    def capacity(self, *, interrupted: bool = False) -> Capacity:
        """Return what the tries so far show."""
        reason = "The search was interrupted." if interrupted else self._reason
        line = self._fit()
        if line is None or line.interval is None:
            return self._without_interval((reason or self._too_little()) + self._omitted())
        return Capacity(
            searched=True,
            rate=line.interval.low,
            interval=line.interval,
            reason=(reason or self._ending(line.interval)) + self._omitted(),
            confirmed=self._confirmed(),
        )

    def _without_interval(self, reason: str) -> Capacity:
        """Return the highest rate that met the goals for sure, below those that missed them."""
        low, high = self._bounds()
        used = self._used()
        missed = (a.trial.rate for a in used if a.saturated or a.verdict == "missed")
        lowest = min(missed, default=math.inf)
        met = (a.trial.rate for a in used if a.verdict == "met" and a.trial.rate < lowest)
        rate = max(met, default=None)
        if low is not None and (rate or 0.0) < low.trial.rate:
            rate_text = units.rate(low.trial.rate, "requests", 3)
            reason += f" Up to {rate_text} the figures meet the goals, and their intervals do not."
        above = high is None and low is not None and rate == low.trial.rate
        return Capacity(rate=rate, searched=True, above_all_tried=above, reason=reason)

    def _confirmed(self) -> bool | None:
        """Return whether the last level met the goals; None where it does not decide that."""
        last = self._attempts[-1]
        if last.trial.stage != "confirm" or last.left_out:
            return None
        if last.nearness <= 1:
            return True
        return False if last.verdict == "missed" else None

    def _ending(self, interval: Interval) -> str:
        levels = sum(attempt.trial.stage == "repeat" for attempt in self._used())
        reach = _reach(interval)
        text = f"{levels} levels around it show it to {units.significant(reach * 100)} %."
        if reach > PRECISION * 1.2:
            times = units.significant((reach / PRECISION) ** 2, 2)
            text += f" Levels {times} times as long would show it to {PRECISION * 100:g} %."
        return text

    def _too_little(self) -> str:
        shortage = self._shortage()
        if shortage > 1:
            times = units.significant(shortage)
            return f"Too much of each level is one queue: {times} times longer levels are needed."
        if len(self._near()) >= FEWEST_REPEATS:
            return "Levels contradict each other: the server is faster at one time than at another."
        return "Too few levels show where the goals are just met."

    def _shortage(self) -> float:
        """Return how many times longer the levels near the capacity have to be, if above 1."""
        counts = [count for attempt in self._near() for count in attempt.goals if count.count]
        return FEWEST_INDEPENDENT / independent(counts) if counts else 0.0

    def _omitted(self) -> str:
        causes = [attempt.left_out for attempt in self._attempts if attempt.left_out]
        late, cold = causes.count("late client"), causes.count("warm-up")
        text = f" Levels left out, since the client was late: {late}." if late else ""
        return text + (f" Levels left out as the server's warm-up: {cold}." if cold else "")

    def _bracket(self) -> Trial | None:
        low, high = self._bounds()
        count = len(self._attempts)
        late = sum(attempt.left_out == "late client" for attempt in self._attempts)
        if low is None and high is None and late >= MOST_LATE:
            self._reason = "The client was late at every rate: this machine is too busy."
        elif low is None and high is not None and high.trial.rate < self._answered * 1e-4:
            self._reason = "Even a ten-thousandth of what the server answers missed the goals."
        elif high is None and low is not None and low.trial.rate >= self._highest * (1 - 1e-9):
            self._reason = "The highest rate that can be sent was tried."
        elif count >= MOST_LEVELS - 1 and (low is None or high is None):
            self._reason = "The search ended at its limit of levels."
        if self._reason:
            return None
        if low is None:
            return self._trial(min(attempt.trial.rate for attempt in self._attempts) / STRIDE)
        if high is None:
            ceiling = CEILING * self._answered
            rate = low.trial.rate * STRIDE
            if low.trial.rate < self._answered:
                rate = math.sqrt(low.trial.rate * ceiling)
            return self._trial(rate)
        close = high.trial.rate / low.trial.rate <= CLOSE
        informative = low.nearness >= INFORMATIVE[0] and high.nearness <= INFORMATIVE[1]
        if count >= BRACKET_LEVELS or close or informative:
            return None
        return self._trial(math.sqrt(low.trial.rate * high.trial.rate))

    def _repeat(self) -> Trial | None:
        repeats = sum(attempt.trial.stage == "repeat" for attempt in self._used())
        line = self._fit()
        interval = None if line is None else line.interval
        share = math.inf if interval is None else _reach(interval)
        last = len(self._attempts) >= MOST_LEVELS - 1
        precise = share <= PRECISION and repeats >= FEWEST_REPEATS
        if interval is not None and (last or precise):
            return self._trial(interval.low, "confirm")
        if last:
            return None
        center, slope = self._middle()
        step = SPREAD[repeats % len(SPREAD)]
        rate = center * (1 + step / max(slope, LEAST_SLOPE))
        return self._trial(rate, "repeat")

    def _used(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts if not attempt.left_out]

    def _near(self) -> list[Attempt]:
        """Return the levels whose rates are near the capacity, whatever they showed."""
        center, slope = self._middle()
        return [
            attempt
            for attempt in self._used()
            if abs(attempt.trial.rate / center - 1) * max(slope, LEAST_SLOPE) <= WIDEST
            and attempt.trial.stage != "confirm"
        ]

    def _fit(self) -> Line | None:
        """Return the line of the goal that is missed first."""
        line = None if None in self._bounds() else first_missed(self._near())
        return line and line.widened(OTHER_SERVERS)

    def _middle(self) -> tuple[float, float]:
        """Return the rate at which the goals seem just met, and the slope of the shares there."""
        low, high = self._bounds()
        if low is None or high is None:
            return self._answered, USUAL_SLOPE
        center = math.sqrt(low.trial.rate * high.trial.rate)
        informative = [
            attempt
            for attempt in self._used()
            if attempt.trial.stage != "confirm"
            and 1 / STRIDE < attempt.trial.rate / center < STRIDE
            and INFORMATIVE[0] <= attempt.nearness <= INFORMATIVE[1]
        ]
        line = first_missed(informative)
        if line is None:
            return center, USUAL_SLOPE
        slope = min(max(line.slope, SLOPES[0]), SLOPES[1])
        # A line of few levels may point far out of what they bracket.
        rate = min(max(line.rate, low.trial.rate / CEILING), high.trial.rate * CEILING)
        return rate, slope

    def _bounds(self) -> tuple[Attempt | None, Attempt | None]:
        """Return the levels below and above the rate that parts met from missed ones best.

        A single level may be on the wrong side by chance: those that contradict it outweigh it.
        """
        attempts = sorted(self._used(), key=lambda attempt: attempt.trial.rate)
        sides = [attempt.side for attempt in attempts]
        costs = [
            sum(max(side, 0.0) for side in sides[:cut])
            + sum(max(-side, 0.0) for side in sides[cut:])
            for cut in range(len(sides) + 1)
        ]
        cut = costs.index(min(costs))
        return (attempts[cut - 1] if cut else None), (attempts[cut] if cut < len(sides) else None)

    def _trial(self, rate: float, stage: Stage = "bracket") -> Trial:
        rate, count = min(rate, self._highest), len(self._attempts)
        length = 1.0
        if self._usual_seconds is not None and stage == "bracket":
            length = self._bracket_length(rate)
        elif self._usual_seconds is not None:  # the last may be one of those that were not needed
            spent = sum(attempt.trial.length for attempt in self._attempts)
            length = (MOST_LENGTH - spent) / (MOST_LEVELS - count)
            length = min(max(length, SHORTEST_BRACKET), 1.0)
        return typical(
            Trial(rate, self._seed + count, length, stage),
            self._schedule,
            self._answered,
            rate if None in self._bounds() else self._middle()[0],
            self._targets,
        )

    @property
    def _targets(self) -> list[float | None]:
        """The shares of requests that may miss the goals, None of a mean; usual ones at first."""
        counts = [count for attempt in self._attempts[:1] for count in attempt.goals]
        return [count.target if count.counts else None for count in counts] or [USUAL_TARGET]

    def _bracket_length(self, rate: float) -> float:
        needed = BRACKET_MISSES / min(target or 1.0 for target in self._targets) / rate
        length = needed / (self._usual_seconds or 1.0)
        return min(max(length, SHORTEST_BRACKET), LONGEST_BRACKET)


def _reach(interval: Interval) -> float:
    return (interval.high - interval.low) / (interval.high + interval.low)
