"""Sets of times as intervals that do not overlap."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.records.trace.events import Integers


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
        """Return the length of the intervals before each time."""
        if not len(self.begin):
            return np.zeros(len(time), np.int64)
        lengths = self.end - self.begin
        cumulative = np.concatenate([[0], np.cumsum(lengths)])
        last_begin = np.searchsorted(self.begin, time, side="right") - 1
        index = np.maximum(last_begin, 0)
        partly = np.minimum(time - self.begin[index], lengths[index])
        return np.where(last_begin < 0, 0, cumulative[index] + partly)

    def within(self, begin: int, end: int) -> int:
        """Return the length of the intervals between two times."""
        low, high = self.before(np.array([begin, end]))
        return int(high - low)

    def outside(self, other: Intervals) -> Intervals:
        """Return the parts of the intervals that are in none of the others."""
        cuts = np.sort(np.concatenate([self.begin, self.end, other.begin, other.end]))
        in_self, in_other = np.diff(self.before(cuts)) > 0, np.diff(other.before(cuts)) > 0
        exclusive = in_self & ~in_other
        return Intervals(cuts[:-1][exclusive], cuts[1:][exclusive])


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
