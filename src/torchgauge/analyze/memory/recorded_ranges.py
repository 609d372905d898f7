"""Stretches of a recording's threads: operators, and the ranges that were put around them."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from torchgauge.records.trace.events import Events, Integers


@dataclasses.dataclass(frozen=True, eq=False)
class Ranges:
    """Stretches of one thread's time, sorted by start, the longer first.

    Attributes:
        name: What the recording calls each.
        start: When it begins, in ns from the earliest timestamp of the recording.
        end: When it ends, in the same.
        thread: An index into `Events.thread.values`.
    """

    name: tuple[str, ...]
    start: Integers
    end: Integers
    thread: Integers

    def take(self, entries: NDArray[np.bool_] | NDArray[np.intp]) -> Ranges:
        """Return the ranges of these entries (indices or a mask)."""
        chosen = np.arange(len(self.name))[entries]
        return Ranges(
            name=tuple(self.name[i] for i in chosen.tolist()),
            start=self.start[chosen],
            end=self.end[chosen],
            thread=self.thread[chosen],
        )

    def innermost(self, time: int, thread: int) -> str:
        """Return the name of the last range of a thread to begin before a time and end after it."""
        around = (self.thread == thread) & (self.start <= time) & (self.end >= time)
        enclosing = np.flatnonzero(around)
        return self.name[enclosing[-1]] if len(enclosing) else ""


def named_ranges(events: Events, prefix: str) -> Ranges:
    """Return the spans whose names start with the prefix."""
    return _ranges(events, events.name.where(lambda name: name.startswith(prefix)))


def outermost_operators(events: Events, without: tuple[str, ...] = ()) -> Ranges:
    """Return the operators of each thread that no earlier one still covers at their start.

    Args:
        events: The recording.
        without: Prefixes of names of ranges, which the profiler records as operators.
    """
    operators = events.category.where(lambda category: category == "cpu_op")
    ranges = _ranges(events, operators & ~events.name.where(lambda name: name.startswith(without)))
    outermost = np.zeros(len(ranges.start), dtype=bool)
    for thread in np.unique(ranges.thread):
        rows = np.flatnonzero(ranges.thread == thread)
        covered = np.maximum.accumulate(ranges.end[rows])
        outermost[rows[:1]] = True
        outermost[rows[1:]] = ranges.start[rows[1:]] >= covered[:-1]
    return ranges.take(outermost)


def _ranges(events: Events, chosen: NDArray[np.bool_]) -> Ranges:
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((-events.duration[rows], events.start[rows]))]
    names = events.name.take(rows)
    return Ranges(
        name=tuple(names.values[code] for code in names.codes.tolist()),
        start=events.start[rows],
        end=events.start[rows] + events.duration[rows],
        thread=events.thread.codes[rows],
    )
