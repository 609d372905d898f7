"""The ranks that come late more often than chance would have it, one after the other.

Without a cause every rank of a group is as likely the last as any other, whatever the distribution
of the times. How often a rank is the last, of the times that any is late, is held against that (a
binomial test), so that one large delay, which any rank may have, names nobody. The unit is a marked
step, since the calls of one step are late together. Where few steps are marked it is a call. Of
units that depend on each other fewer count (their autocorrelation time). What the others lose is
worth naming where the whole interval is above NOTICEABLE.

The rank that is found is taken out, and the rest is compared again: of two late ranks the one that
comes before the other would hide behind it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from torchgauge.analyze.communication.collectives import Message
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.trace.events import ABSENT, Fractions, Integers
from torchgauge.records.trace.ranks import Straggler


class LastRanks(NamedTuple):
    """Who was the last, by call, and the ns that the middle one of the others waited for it."""

    rank_index: Integers
    late: Fractions


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedCollective:
    """One collective on the ranks of its group, in ns of one clock: ranks × calls.

    `rank_indices` are those of the ranks among all of the job; `complete` where none of them has it
    less or more often than most have, and is left out. `step` is the marked step of each call,
    ABSENT outside of them.
    """

    message: Message
    complete: bool
    rank_indices: Integers
    begin: Integers
    end: Integers
    step: Integers

    @property
    def last(self) -> Integers:
        """When the last rank had begun, by call; not after the call's end."""
        return np.asarray(np.minimum(self.begin.max(axis=0), self.end.min(axis=0)))

    @property
    def wait(self) -> Integers:
        """How long each rank waited: ranks × calls."""
        return np.asarray(np.clip(self.last - self.begin, 0, None))

    @property
    def transfer(self) -> Integers:
        """How long the transfer itself took, by call."""
        return np.asarray(np.median(self.end, axis=0), np.int64) - self.last

    @property
    def last_ranks(self) -> LastRanks:
        """Who was waited for in each call."""
        others_begin = np.median(np.sort(self.begin, axis=0)[:-1], axis=0)
        late = np.maximum(self.last - others_begin, 0)
        return LastRanks(self.rank_indices[np.argmax(self.begin, axis=0)], late)

    def without(self, rank_indices: list[int]) -> MatchedCollective | None:
        """Return it without these ranks; None where fewer than two are left."""
        rows = np.flatnonzero(~np.isin(self.rank_indices, rank_indices))
        if len(rows) < 2:
            return None
        return dataclasses.replace(
            self, rank_indices=self.rank_indices[rows], begin=self.begin[rows], end=self.end[rows]
        )


# Ranks differ by chance: what the others wait less for is no straggler.
NOTICEABLE = 0.02  # of the window
TIMES = 2.0  # what the others wait for the middle one of the others
# The error of all tests of a job together. Of few calls the autocorrelation time is estimated too
# low: at 0.01 as many as 5 % of simulated jobs without a late rank named one.
ALPHA = {"step": 0.01, "call": 0.001}
# Fewer units can hardly tell eight ranks apart.
MIN_STEPS = 8
# A collective's ends differ by some µs between ranks, and so does what their clocks are aligned by.
CLOCKS = 5_000.0  # ns
_RESAMPLES = 1000
_MAX_BLOCKS = 1000


class _Units:
    """Steps or calls, with the rank that was the last in each, and how long others waited for it.

    `lost` is the ns of each rank over all units.
    """

    unit: Literal["step", "call"]

    def __init__(self, collectives: Sequence[MatchedCollective], ranks: int) -> None:
        self._collectives = collectives
        step = np.concatenate([collective.step for collective in collectives])
        steps = np.unique(step[step != ABSENT])
        self.unit = "step" if len(steps) >= MIN_STEPS else "call"
        by_step = self.unit == "step"
        self._unit = np.where(step == ABSENT, ABSENT, np.searchsorted(steps, step))
        if not by_step:
            self._unit = np.arange(len(step))
        last = [collective.last_ranks for collective in collectives]
        self._rank = np.concatenate([calls.rank_index for calls in last])
        late = np.concatenate([calls.late for calls in last])
        self._late = np.where((late > CLOCKS) & (self._unit != ABSENT), late, 0.0)
        sizes = [np.full(len(c.step), 1 / len(c.rank_indices)) for c in collectives]
        self._share = np.concatenate(sizes)
        self.lost = np.bincount(self._rank, self._late, minlength=ranks)
        self._last = self._last_ranks(ranks)

    def _last_ranks(self, ranks: int) -> Integers:
        """Return for each unit in which others waited the rank that they waited for most."""
        waited = self._late > 0
        key, entry = np.unique(self._unit[waited] * ranks + self._rank[waited], return_inverse=True)
        order = np.lexsort((np.bincount(entry, self._late[waited], len(key)), key // ranks))
        ordered = key[order]
        is_most = np.append(np.diff(ordered // ranks) != 0, [True] * bool(len(ordered)))
        return np.asarray(ordered[is_most.astype(np.bool_)] % ranks)

    def times_last(self, index: int) -> int:
        """Return in how many units a rank was the last."""
        return int((self._last == index).sum())

    def times_waited(self, index: int) -> int:
        """Return in how many units with a rank any rank was late."""
        return len(np.unique(self._unit[self._calls(index) & (self._late > 0)]))

    def late(self, index: int) -> Fractions:
        """Return the ns that others waited for a rank, by unit in which it took part, in order."""
        calls = self._calls(index)
        units, entry = np.unique(self._unit[calls], return_inverse=True)
        own = np.where(self._rank[calls] == index, self._late[calls], 0.0)
        late = np.asarray(np.bincount(entry, own, len(units)), np.float64)
        if self.unit == "step":
            return late
        ordered: Fractions = late[self._call_order(calls)]
        return ordered

    def dependence(self, index: int) -> float:
        """Return how many units are as good as one that does not depend on those before it.

        What slows a rank down may last for several steps. The calls of one step are late together.
        """
        if self.unit == "step":
            return autocorrelation_time(self.late(index))
        calls = self._calls(index)
        order = self._call_order(calls)
        late = np.where(self._rank == index, self._late, -self._late)[calls][order]
        return autocorrelation_time(late)

    def _call_order(self, calls: np.ndarray) -> Integers:
        return np.argsort(np.concatenate([c.last for c in self._collectives])[calls])

    def chance(self, index: int) -> float:
        """Return the probability that a rank is the last in a unit in which any is, at most.

        In a step as in its smallest group. Of unequal chances of calls a binomial of their mean has
        the heavier tail (Hoeffding 1956).
        """
        share = self._share[self._calls(index) & (self._late > 0)]
        return float(share.max() if self.unit == "step" else share.mean())

    def _calls(self, index: int) -> np.ndarray:
        """Return which calls a rank takes part in, of those in units."""
        members = [np.full(len(c.step), index in c.rank_indices) for c in self._collectives]
        return np.asarray(np.concatenate(members) & (self._unit != ABSENT))


def stragglers(
    collectives: Sequence[MatchedCollective], numbers: Sequence[int], window: float
) -> Iterator[Straggler]:
    """Yield the ranks that come late, in the order in which they are named.

    `numbers` are the ranks' numbers by index, `window` the seconds of the recording.
    """
    excluded: list[int] = []
    while True:
        candidates = (collective.without(excluded) for collective in collectives)
        remaining = [collective for collective in candidates if collective is not None]
        if not remaining:
            return
        units = _Units(remaining, len(numbers))
        index = _late_rank(units, window, len(numbers) - len(excluded))
        if index is None:
            return
        late = units.late(index)
        interval = _interval(late)
        if interval.low <= NOTICEABLE * window:
            return
        yield Straggler(
            rank=numbers[index],
            lost=float(late.sum()) * 1e-9,
            interval=interval,
            last=units.times_last(index),
            units=units.times_waited(index),
            unit=units.unit,
        )
        excluded.append(index)


def _late_rank(units: _Units, window: float, ranks: int) -> int | None:
    """Return the rank that the others wait for most, of those that chance does not explain."""
    lost = units.lost * 1e-9
    for index in np.argsort(-lost, kind="stable").tolist():
        if lost[index] <= NOTICEABLE * window:
            return None
        if lost[index] <= TIMES * float(np.median(np.delete(lost, index))):
            continue
        if _chance_of(units, index) * ranks < ALPHA[units.unit]:
            return int(index)
    return None


def _chance_of(units: _Units, index: int) -> float:
    """Return how likely a rank would be the last so often or more often, without a cause.

    The binomial's tail, P(X ≥ k) = I_p(k, n − k + 1), which takes n and k that are no integers.
    """
    tau = units.dependence(index)
    last, count = units.times_last(index) / tau, units.times_waited(index) / tau
    if not last:
        return 1.0
    return float(imported("scipy.special").betainc(last, count - last + 1, units.chance(index)))


def _interval(late: Fractions) -> Interval:
    """Return the 95 % interval of the sum over as many units, by bootstrap of like neighbours."""
    length = math.ceil(max(autocorrelation_time(late), len(late) / _MAX_BLOCKS))
    blocks = np.add.reduceat(late, np.arange(0, len(late), length))
    weights = np.random.default_rng(0).multinomial(
        len(blocks), np.full(len(blocks), 1 / len(blocks)), _RESAMPLES
    )
    low, high = np.quantile(weights @ blocks, (0.025, 0.975)) * 1e-9
    return Interval(low=float(low), high=float(high), scope="process")


def late_totals(collectives: Sequence[MatchedCollective], ranks: int) -> Integers:
    """Return for each rank the ns that the middle one of the others waited for it as the last."""
    total = np.zeros(ranks)
    for collective in collectives:
        last = collective.last_ranks
        total += np.bincount(last.rank_index, last.late, minlength=ranks)
    return total.astype(np.int64)
