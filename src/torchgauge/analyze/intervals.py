"""Sets of times as intervals that do not overlap."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.model.events import Integers


@dataclasses.dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals from `begin` to `end` in ns, in ascending order; no two overlap."""

    begin: Integers
    end: Integers

    @property
    def length(self) -> int:
        """The time in all of them, in ns."""
        return int((self.end - self.begin).sum())

    def before(self, time: Integers) -> Integers:
        """Return how much of them lies before each time."""
        if not len(self.begin):
            return np.zeros(len(time), np.int64)
        lengths = self.end - self.begin
        whole = np.concatenate([[0], np.cumsum(lengths)])
        place = np.searchsorted(self.begin, time, side="right") - 1
        at = np.maximum(place, 0)
        partly = np.minimum(time - self.begin[at], lengths[at])
        return np.where(place < 0, 0, whole[at] + partly)

    def within(self, begin: int, end: int) -> int:
        """Return how much of them lies between two times."""
        low, high = self.before(np.array([begin, end]))
        return int(high - low)

    def outside(self, other: Intervals) -> Intervals:
        """Return what of them is in none of the others."""
        cuts = np.sort(np.concatenate([self.begin, self.end, other.begin, other.end]))
        mine, theirs = np.diff(self.before(cuts)) > 0, np.diff(other.before(cuts)) > 0
        kept = mine & ~theirs
        return Intervals(cuts[:-1][kept], cuts[1:][kept])


def union(begin: Integers, end: Integers, window: tuple[int, int]) -> Intervals:
    """Return the times within the window that any of these intervals covers."""
    begin, end = np.clip(begin, *window), np.clip(end, *window)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    if not len(begin):
        return Intervals(begin, end)
    reach = np.maximum.accumulate(end)
    first = np.concatenate([[True], begin[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(begin[first], reach[last])
