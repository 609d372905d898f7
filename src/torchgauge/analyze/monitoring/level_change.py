"""Changes of a monitored series' level, with a budget of false alarms.

1. Calls next to each other make blocks; a block's level is the trimmed mean of the logarithms.
2. From it the usual level is taken: the median of the days before at the same time of day, and how
   much higher or lower than that the series was in the hours before.
3. The differences are summed up by Page's rule (CUSUM) as log-likelihood ratios: of a level that is
   higher by the smallest step of interest, against one no higher than hours usually differ. Their
   variance is multiplied by the integrated autocorrelation time of the blocks before.
4. The sum at which a change is reported is the one whose mean time between false alarms is what the
   budget allows, by Siegmund's approximation.

Sources: Page, "Continuous inspection schemes", Biometrika 41 (1954); Siegmund, "Sequential
Analysis" (1985), equation 2.52 with the overshoot 1.166; of the autocorrelation time Geyer (1992).
How often it is wrong: benchmarks/monitor_alerts.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.statistics.autocorrelation import cautious, initial_positive_sequence
from torchgauge.records.monitoring.histogram import PER_OCTAVE, Histogram
from torchgauge.records.monitoring.window import Window

HOUR, DAY = 3600.0, 86400.0
# Calls of a block: fewer are joined with those that follow, within an hour.
BLOCK_CALLS = 50
# Days before with which a block is compared, and the fewest for that.
DAYS, FEWEST_DAYS = 14, 5
# Blocks within so many seconds of the same time of day are compared; what is usual is looked up
# for every five minutes.
NEARBY, LOOKUP_SPACING = 1800.0, 300.0
# Blocks that tell how much higher the series is today, up to an hour before; and the fewest.
RECENT, FEWEST_RECENT = 90, 20
# Of the logarithms at either end, which the level leaves out.
TRIMMED = 0.1
# A block further off than so many deviations counts as if it were there.
MOST_DEVIATIONS = 3.0
# Blocks that a change needs at least, however far they are off: bad minutes are none.
FEWEST_BLOCKS = 4
# An hour's level lies within this many of the deviations of hours.
HOUR_DEVIATIONS = 2.5
# The part of a step by which hours may differ and it is still told.
MOST_WANDER = 0.6
OVERSHOOT = 1.166
# The least sum, whatever the budget: e^4 to 1.
LEAST_SUM = 4.0

_Floats = npt.NDArray[np.float64]
_Integers = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Calls next to each other, until `end` (seconds since 1970).

    `level` is their trimmed mean logarithm, `variance` its variance times the calls.
    """

    end: float
    calls: int
    level: float
    variance: float


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


def blocks_of(windows: Iterable[Window]) -> list[Block]:
    """Return the blocks of one series: windows in order, small ones joined."""
    blocks: list[Block] = []
    parts: list[Histogram] = []
    calls, begin = 0, 0.0
    for window in sorted(windows, key=lambda window: window.begin):
        if not window.histogram.counts:
            continue
        if parts and window.end - begin > HOUR:
            parts, calls = [], 0  # too few calls in an hour: of these nothing is told
        if not parts:
            begin = window.begin
        parts.append(window.histogram)
        calls += window.histogram.count
        if calls >= BLOCK_CALLS:
            blocks.append(Block(window.end, calls, *_location(parts)))
            parts, calls = [], 0
    return sorted(blocks)


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
    """By how much hours `wander`, the variance of blocks `extra` to their calls', and their τ."""

    wander: float
    extra: float
    tau: float

    def ratio(self, difference: float, variance: float, step: float) -> float:
        """Return the log-likelihood ratio of a level higher by `step` to one by `wander`."""
        reach = MOST_DEVIATIONS * math.sqrt(variance)
        difference = min(max(difference, -reach), step + reach)
        middle = (step + self.wander) / 2
        return (step - self.wander) * (difference - middle) / (variance * self.tau)


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
            step = max(self._step, usual.wander / MOST_WANDER) if usual is not None else 0.0
            smallest = math.expm1(step) if usual is not None else smallest
            threshold = self._threshold(day, step, usual) if usual is not None else 0.0
            for index in today.tolist():
                difference = self._differences[index] = self._difference(index)
                if usual is None or not math.isfinite(difference):
                    continue
                variance = float(self._noise[index]) + usual.extra
                for total in sums:
                    ratio = usual.ratio(total.sign * difference, variance, step)
                    total.add(index, ratio, threshold / FEWEST_BLOCKS)
                moved = next((total for total in sums if total.value >= threshold), None)
                if moved is not None:
                    changes.append(self._change(moved.since, index))
                    sums = (_Sum(1), _Sum(-1))
        return LevelChanges(tuple(changes), smallest)

    def _same_time(self, today: _Integers) -> _Floats:
        """Return the median level of the days before, at the same time of day; NaN without any."""
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
                usual[number] = np.median(levels[low:high])
        at_blocks: _Floats = usual[positions]
        return at_blocks

    def _difference(self, index: int) -> float:
        """Return how much higher a block is than the days before and the hours before say."""
        end = self._ends[index]
        last = int(np.searchsorted(self._ends, end - HOUR))
        first = max(int(np.searchsorted(self._ends, end - DAY)), last - RECENT)
        recent = self._from_days[first:last]
        recent = recent[np.isfinite(recent)]
        if len(recent) < FEWEST_RECENT:
            return math.nan
        return float(self._from_days[index] - np.median(recent))

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
            wander=HOUR_DEVIATIONS * math.sqrt(max(_deviation(medians) ** 2 - chance, 0.0)),
            extra=max(scale**2 - float(np.median(self._noise[past])), 0.0),
            tau=tau,
        )

    def _threshold(self, day: int, step: float, usual: _Usual) -> float:
        """Return the sum at which the mean time between false alarms is what the budget allows."""
        past = (self._day < day) & (self._day >= day - DAYS)
        per_day = past.sum() / len(np.unique(self._day[past]))
        allowed = per_day * self._budget.days / self._budget.alarms
        variance = (float(np.median(self._noise[past])) + usual.extra) * usual.tau
        information = (step - usual.wander) ** 2 / variance if variance else math.inf
        if not math.isfinite(information):
            return LEAST_SUM
        sum_allowed = math.log(1 + allowed * information / 2) - OVERSHOOT * math.sqrt(information)
        return max(sum_allowed, LEAST_SUM)

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


def _deviation(values: _Floats) -> float:
    """Return the standard deviation about 0, by the median."""
    return 1.4826 * float(np.median(np.abs(values)))


def _location(parts: Sequence[Histogram]) -> tuple[float, float]:
    """Return the trimmed mean of the logarithms, and its variance times the calls."""
    low = min(part.offset for part in parts)
    high = max(part.offset + len(part.counts) for part in parts)
    counts = np.zeros(high - low, np.int64)
    for part in parts:
        counts[part.offset - low : part.offset - low + len(part.counts)] += part.counts
    middles: _Floats = low + 0.5 + np.arange(len(counts), dtype=np.float64)
    return trimmed_mean(middles * (math.log(2.0) / PER_OCTAVE), counts)


def trimmed_mean(values: _Floats, counts: _Integers) -> tuple[float, float]:
    """Return the trimmed mean of counted values in ascending order, and its variance times n.

    Source of the variance: Tukey and McLaughlin (1963), from winsorized deviations.
    """
    total = float(counts.sum())
    ends = np.cumsum(counts)
    low, high = TRIMMED * total, (1 - TRIMMED) * total
    inside = np.maximum(np.minimum(ends, high) - np.maximum(ends - counts, low), 0.0)
    level = float((inside * values).sum() / inside.sum())
    lowest = int(np.searchsorted(ends, low, side="right"))
    highest = min(int(np.searchsorted(ends, high)), len(values) - 1)
    winsorized = np.clip(values, values[lowest], values[highest])
    mean = float((counts * winsorized).sum() / total)
    variance = float((counts * (winsorized - mean) ** 2).sum() / total)
    return level, variance / (1 - 2 * TRIMMED) ** 2
