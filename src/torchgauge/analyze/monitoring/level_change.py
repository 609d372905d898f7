"""Changes of a monitored series' level, with a budget of false alarms.

1. Calls next to each other make blocks; a block's level is the trimmed mean of the logarithms.
2. From it the usual level is taken: the trimmed mean of the days before at the same time of day,
   and how much higher or lower than that the series was in the hours before.
3. The differences are summed up by Page's rule (CUSUM) as log-likelihood ratios: of a level that is
   higher by the smallest step of interest, against a lower one. Their variance is multiplied by the
   integrated autocorrelation time of the blocks before.
4. The sum at which a change is reported is the one whose mean time between false alarms is what the
   budget allows, by Siegmund's approximation, of hours that differ as those before did: an hour of
   the day that differs more than others, as after a nightly job, by a deviation of its own. The
   lower level is the one with which a step is found soonest.

Sources: Page, "Continuous inspection schemes", Biometrika 41 (1954); Siegmund, "Sequential
Analysis" (1985), equation 2.52 with the overshoot 1.166; of the autocorrelation time Geyer (1992).
How often it is wrong: benchmarks/monitor_alerts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.monitoring.level_blocks import HOUR, TRIMMED, Block
from torchgauge.analyze.statistics.autocorrelation import cautious, initial_positive_sequence

DAY = 86400.0
# Days before with which a block is compared, and the fewest for that.
DAYS, FEWEST_DAYS = 14, 5
# Blocks within so many seconds of the same time of day are compared; what is usual is looked up
# for every five minutes.
NEARBY, LOOKUP_SPACING = 1800.0, 300.0
# Blocks that tell how much higher the series is today, up to an hour before: the most, the fewest,
# and the seconds in which they are if these have so many.
RECENT, FEWEST_RECENT, RECENT_TIME = 150, 20, 6 * HOUR
# A block further off than so many deviations counts as if it were there.
MOST_DEVIATIONS = 3.0
# Blocks that a change needs at least, however far they are off: bad minutes are none.
FEWEST_BLOCKS = 4
# A step is told if it is as many of the standard deviations by which hours differ.
STEP_DEVIATIONS = 4.2
# An hour of the day differs more than others if the mean square of its levels, and of those next to
# it, is as many times theirs.
UNEQUAL_HOURS = 4.0
# Lower levels that are tried, as parts of the step.
LOWER_LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
OVERSHOOT = 1.166
# The least sum, whatever the budget: e^4 to 1; and the largest.
LEAST_SUM, LARGEST_SUM = 4.0, 200.0

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]
# Levels of hours in their standard deviations, and how often hours have them.
_HOURS: _Floats = np.linspace(-5, 5, 101)
_WEIGHTS: _Floats = np.exp(-(_HOURS**2) / 2) / np.exp(-(_HOURS**2) / 2).sum()


@dataclass(frozen=True)
class Budget:
    """The false alarms that are accepted in a time, on average."""

    alarms: float = 1.0
    days: float = 30.0


class LevelChange(NamedTuple):
    """A move of the level: from about `begin` on, detected at `detected` (s since 1970).

    `size` is relative (0.1 is 10 % more, −0.1 less); `calls` were needed to tell.
    """

    begin: float
    detected: float
    size: float
    calls: int


class LevelChanges(NamedTuple):
    """The changes found; `smallest` is the step that the last day lets tell.

    `unknown` says why nothing was looked for.
    """

    changes: tuple[LevelChange, ...] = ()
    smallest: float | None = None
    unknown: str = ""


def level_changes(
    blocks: Sequence[Block], step: float = 0.1, budget: Budget | None = None
) -> LevelChanges:
    """Return where the level of a series rose or fell by `step` (a ratio) or more.

    In the first five days none is looked for. After a change the new level is the usual one.
    """
    days = (blocks[-1].end - blocks[0].end) / DAY if blocks else 0.0
    if days < FEWEST_DAYS:
        return LevelChanges(
            unknown=f"changes are looked for from {FEWEST_DAYS} days on; there are {days:.1f}"
        )
    return _Watch(blocks, math.log1p(step), budget or Budget()).result()


class _Usual(NamedTuple):
    """The variance of blocks `extra` to their calls', their τ, and by how much hours differ.

    `hours` are the standard deviations by hour of the day (UTC).
    """

    extra: float
    tau: float
    hours: tuple[float, ...]


class _Plan(NamedTuple):
    """What finds a level higher by `step`, and not by `low`: a sum that reaches `threshold`."""

    step: float
    low: float
    threshold: float

    def ratio(self, difference: float, variance: float, tau: float) -> float:
        """Return the log-likelihood ratio of the two levels, of a block."""
        reach = MOST_DEVIATIONS * math.sqrt(variance)
        difference = min(max(difference, -reach), self.step + reach)
        middle = (self.step + self.low) / 2
        return (self.step - self.low) * (difference - middle) / (variance * tau)


@dataclass
class _Sum:
    """Page's sum of log-likelihood ratios for a level that rose (`sign` 1) or fell (−1)."""

    sign: int
    value: float = 0.0
    since: int = -1

    def add(self, index: int, ratio: float, largest: float) -> None:
        """Add a block's ratio, `largest` at most; a sum that is not above 0 begins again."""
        self.value += min(ratio, largest)
        if self.value <= 0:
            self.value, self.since = 0.0, -1
        elif self.since < 0:
            self.since = index


class _Watch:
    """Goes through the blocks, day by day: what is usual is learnt from the days before."""

    def __init__(self, blocks: Sequence[Block], step: float, budget: Budget) -> None:
        self._ends = np.array([block.end for block in blocks])
        self._calls = np.array([block.calls for block in blocks])
        self._levels = np.array([block.level for block in blocks])
        self._noise = np.array([block.variance / block.calls for block in blocks])
        self._step = step
        self._budget = budget
        self._day = ((self._ends - self._ends[0]) // DAY).astype(np.int64)
        # From the same time of the days before; and less what that was in the hours before.
        self._from_days = np.full(len(blocks), np.nan)
        self._differences = np.full(len(blocks), np.nan)

    def result(self) -> LevelChanges:
        """Return the changes, and the step that the last day lets tell."""
        changes: list[LevelChange] = []
        smallest = None
        sums = (_Sum(1), _Sum(-1))
        for day in range(1, int(self._day[-1]) + 1):
            today = np.flatnonzero(self._day == day)
            self._from_days[today] = self._levels[today] - self._same_time(today)
            usual = self._usual(day) if day >= FEWEST_DAYS else None
            plans = {} if usual is None else self._plans(day, usual)
            smallest = min((math.expm1(plan.step) for plan in plans.values()), default=smallest)
            for index in today.tolist():
                difference = self._differences[index] = self._difference(index)
                if usual is None or not math.isfinite(difference):
                    continue
                plan = plans[usual.hours[int(self._ends[index] // HOUR) % 24]]
                variance = float(self._noise[index]) + usual.extra
                for total in sums:
                    ratio = plan.ratio(total.sign * difference, variance, usual.tau)
                    total.add(index, ratio, plan.threshold / FEWEST_BLOCKS)
                moved = next((total for total in sums if total.value >= plan.threshold), None)
                if moved is not None:
                    changes.append(self._change(moved.since, index))
                    sums = (_Sum(1), _Sum(-1))
        return LevelChanges(tuple(changes), smallest)

    def _same_time(self, today: _Integers) -> _Floats:
        """Return the level of the days before, at the same time of day; NaN without any."""
        first = self._ends[today[0]] if len(today) else 0.0
        before = np.flatnonzero((self._ends < first) & (self._ends > first - DAYS * DAY))
        times = self._ends[before] % DAY
        order = np.argsort(times)
        # Around midnight the time of day wraps.
        times = np.concatenate([times[order] + shift for shift in (-DAY, 0.0, DAY)])
        levels = np.tile(self._levels[before][order], 3)
        moments, positions = np.unique(
            np.round(self._ends[today] % DAY / LOOKUP_SPACING) * LOOKUP_SPACING, return_inverse=True
        )
        usual = np.full(len(moments), np.nan)
        bounds = np.searchsorted(times, (moments - NEARBY, moments + NEARBY)).T.tolist()
        for number, (low, high) in enumerate(bounds):
            if high > low:
                usual[number] = _middle(levels[low:high])
        at_blocks: _Floats = usual[positions]
        return at_blocks

    def _difference(self, index: int) -> float:
        """Return how much higher a block is than the days before and the hours before say."""
        end = self._ends[index]
        last = int(np.searchsorted(self._ends, end - HOUR))
        a_day_ago, since = np.searchsorted(self._ends, (end - DAY, end - HOUR - RECENT_TIME))
        first = max(int(a_day_ago), last - RECENT, min(int(since), last - FEWEST_RECENT))
        recent = self._from_days[first:last]
        recent = recent[np.isfinite(recent)]
        if len(recent) < FEWEST_RECENT:
            return math.nan
        return float(self._from_days[index]) - _middle(recent)

    def _usual(self, day: int) -> _Usual | None:
        """Return how the blocks of the days before differ; None of too few."""
        past = np.flatnonzero(
            (self._day < day) & (self._day >= day - DAYS) & np.isfinite(self._differences)
        )
        hours, numbers = np.unique(self._ends[past] // HOUR, return_inverse=True)
        if len(hours) < 2 * FEWEST_RECENT:
            return None
        differences = self._differences[past]
        medians = np.array([np.median(differences[numbers == hour]) for hour in range(len(hours))])
        within = differences - medians[numbers]
        scale = _deviation(within)
        clipped = np.clip(within, -MOST_DEVIATIONS * scale, MOST_DEVIATIONS * scale)
        tau = cautious(initial_positive_sequence(clipped), len(clipped))
        # Hours differ by chance as well, as medians of few blocks do.
        chance = math.pi / 2 * scale**2 * tau * len(hours) / len(past)
        return _Usual(
            extra=max(scale**2 - float(np.median(self._noise[past])), 0.0),
            tau=tau,
            hours=tuple(_deviations(medians, hours.astype(np.int64) % 24, chance)),
        )

    def _plans(self, day: int, usual: _Usual) -> dict[float, _Plan]:
        """Return what finds a step, by the standard deviations of hours."""
        past = (self._day < day) & (self._day >= day - DAYS)
        per_day = past.sum() / len(np.unique(self._day[past]))
        allowed = per_day * self._budget.days / self._budget.alarms
        variance = (float(np.median(self._noise[past])) + usual.extra) * usual.tau
        return {
            deviation: _plan(self._step, deviation, variance, allowed)
            for deviation in set(usual.hours)
        }

    def _change(self, since: int, index: int) -> LevelChange:
        """Return the change that was found at a block, and make the new level the usual one."""
        part = slice(since, index + 1)
        moved = float(np.nanmedian(self._differences[part]))
        self._levels[:since] += moved
        self._from_days[since:] -= moved
        self._differences[part] -= moved
        begin = self._ends[since - 1] if since else self._ends[since]
        return LevelChange(
            begin=float(begin),
            detected=float(self._ends[index]),
            size=math.expm1(moved),
            calls=int(self._calls[part].sum()),
        )


def _plan(step: float, deviation: float, variance: float, allowed: float) -> _Plan:
    """Return how a step is found soonest with one false alarm in `allowed` blocks on average.

    Hours differ with a standard `deviation`, blocks by a `variance` about their hour's level.
    """
    step = max(step, STEP_DEVIATIONS * deviation)
    if not variance:
        return _Plan(step, 0.0, LEAST_SUM)
    plans = []
    for low in (share * step for share in LOWER_LEVELS):
        slope = (step - low) / math.sqrt(variance)
        drifts = (_HOURS * deviation - (step + low) / 2) / math.sqrt(variance)
        total = max(_threshold(slope, drifts, allowed), LEAST_SUM)
        plans.append((total / slope**2, _Plan(step, low, total)))
    return min(plans)[1]


def _threshold(slope: float, drifts: _Floats, allowed: float) -> float:
    """Return the sum that hours whose blocks drift like this reach once in `allowed` blocks."""
    drifts = np.where(np.abs(drifts) < 1e-4, 1e-4, drifts)
    low, high = 0.0, LARGEST_SUM
    while high - low > 0.01:
        middle = (low + high) / 2
        ways = 2 * drifts * (middle / slope + OVERSHOOT)
        blocks = (np.exp(np.clip(-ways, -700, 700)) + ways - 1) / (2 * drifts**2)
        alarms = float((_WEIGHTS / np.maximum(blocks, 1.0)).sum())
        low, high = (middle, high) if alarms * allowed > 1 else (low, middle)
    return high


def _deviations(levels: _Floats, hours: _Integers, chance: float) -> Iterator[float]:
    """Yield the standard deviation of hours' levels by hour of the day, beyond `chance`."""
    usual = math.sqrt(max(_deviation(levels) ** 2 - chance, 0.0))
    for hour in range(24):
        near = levels[np.isin(hours, [(hour + shift) % 24 for shift in (-1, 0, 1)])]
        square = float(np.square(near).mean()) if len(near) else 0.0
        differs_more = square > UNEQUAL_HOURS * (usual**2 + chance)
        yield math.sqrt(square) if differs_more else usual


def _middle(values: _Floats) -> float:
    """Return the mean of the values without those at either end."""
    ends = int(TRIMMED * len(values))
    return float(np.sort(values)[ends : len(values) - ends].mean())


def _deviation(values: _Floats) -> float:
    """Return the standard deviation about 0, by the median."""
    return 1.4826 * float(np.median(np.abs(values)))
