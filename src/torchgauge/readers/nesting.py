"""Nests spans per thread: parents, depths and self times.

Spans are ordered by start, the longer first, then as given. The parent of a span is the latest one
before it in that order that has not ended at its start and does not end before its end, but for a
tolerance. A time belongs to the latest span that covers it: that is the span's self time, so self
times add up to the time that any span covers, whatever overlaps. Where all nest strictly, that is
a span's duration without its children's.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from torchgauge.records.trace.events import ABSENT, Codes, Integers, Rows

# Times of Kineto before 2024 are whole microseconds, start and duration each rounded down.
ROUNDING = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Nesting:
    """The tree of the spans that were given; all arrays are in their order, times in ns.

    `parent` is an index, ABSENT for a root; `depth` counts from 0. `end` is cut where a span would
    outlast its parent by rounding. `self_time` plus the `total_time` of the children is
    `total_time`, exactly; that is `end` − `start` unless spans overlap that do not nest. `overlaps`
    counts spans that began inside one that ends before them.
    """

    parent: Rows
    depth: Integers
    start: Integers
    end: Integers
    self_time: Integers
    total_time: Integers
    overlaps: int
    _order: Rows
    _threads: dict[int, slice]

    def innermost_at(self, time: Integers, thread: Codes) -> Rows:
        """Return the innermost span that covers each time on its thread; ABSENT where none does."""
        spans = np.full(len(time), ABSENT, dtype=np.intp)
        for code in np.unique(thread).tolist():
            rows = self._order[self._threads.get(code, slice(0))]
            queries = np.flatnonzero(thread == code)
            last = np.searchsorted(self.start[rows], time[queries], side="right") - 1
            spans[queries] = np.append(rows, ABSENT)[last]  # place −1 is the one appended
        return self._covering(spans, time)

    def _covering(self, spans: Rows, time: Integers) -> Rows:
        """Return the first of each span and its ancestors that has not ended."""
        while True:
            ended = np.flatnonzero(spans != ABSENT)
            ended = ended[self.end[spans[ended]] <= time[ended]]
            if not len(ended):
                return spans
            spans[ended] = self.parent[spans[ended]]


def nest(start: Integers, duration: Integers, thread: Codes, *, tolerance: int = 0) -> Nesting:
    """Return how spans nest on each thread.

    `start` and `duration` in ns, `tolerance` how much longer than its parent a span may seem to
    last: `ROUNDING` for traces of whole microseconds.
    """
    order = np.lexsort((-duration, start, thread)).astype(np.int32)
    ordered = thread[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    threads = {
        int(ordered[low]): slice(low, high)
        for low, high in itertools.pairwise(bounds)
        if high > low
    }
    count = len(start)
    parent = np.full(count, ABSENT, dtype=np.int32)
    depth = np.zeros(count, dtype=np.int32)
    self_time, end = duration.copy(), start + duration
    overlaps = 0
    for on_thread in threads.values():
        rows = order[on_thread]
        tree = _strict(start[rows], end[rows])
        if tree is None:
            tree = _overlapping(start[rows], end[rows], tolerance)
        inner = tree.parent != ABSENT
        parent[rows[inner]] = rows[tree.parent[inner]]
        depth[rows], self_time[rows], end[rows] = tree.depth, tree.self_time, tree.end
        overlaps += tree.overlaps
    total = _totals(parent, depth, self_time)
    return Nesting(parent, depth, start, end, self_time, total, overlaps, order, threads)


@dataclasses.dataclass(frozen=True, eq=False)
class _Thread:
    """One thread's tree, in the order of its spans."""

    parent: Rows
    depth: Integers
    end: Integers
    self_time: Integers
    overlaps: int = 0


def _strict(start: Integers, end: Integers) -> _Thread | None:
    """Return the tree of one thread; None where its spans do not nest strictly.

    The depth is how many spans before in the order have not ended: all of them, without those that
    have. An empty span has ended when the next starts, even at the same time, where it comes last.
    """
    empty = end == start
    ended = np.searchsorted(np.sort(end[~empty]), start, side="right")
    depth = np.arange(len(start)) - ended - (np.cumsum(empty) - empty)
    parent = np.full(len(start), ABSENT, dtype=np.intp)
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(depth.max(initial=0) + 2))
    for level in range(1, len(cuts) - 1):
        outer = by_depth[cuts[level - 1] : cuts[level]]
        children = by_depth[cuts[level] : cuts[level + 1]]
        # The latest of the level above is the one still running.
        before = np.searchsorted(outer, children) - 1
        if len(before) and before[0] < 0:
            return None
        parent[children] = outer[before]
    inner = np.flatnonzero(parent != ABSENT)
    if depth.min(initial=0) < 0 or (end[inner] > end[parent[inner]]).any():
        return None
    self_time = end - start
    np.subtract.at(self_time, parent[inner], (end - start)[inner])
    return _Thread(parent, depth, end, self_time)


def _overlapping(start: Integers, end: Integers, tolerance: int) -> _Thread:
    """Return the tree of one thread, span by span, where some overlap without nesting.

    `running` holds the spans that may still own a time or be a parent: a span that ends no later
    than one after it in the order never will, so ends fall from the first to the last, the latest.
    """
    starts, ends = start.tolist(), end.tolist()
    count, overlaps, now = len(starts), 0, 0
    parent, depth, self_time = [ABSENT] * count, [0] * count, [0] * count
    running: list[int] = []

    def advance(now: int, until: int) -> None:
        while running and now < until:
            latest = running[-1]
            stop = min(ends[latest], until)
            self_time[latest] += stop - now
            now = stop
            if ends[latest] <= until:
                running.pop()

    for row, begin in enumerate(starts):
        advance(now, begin)
        now = begin
        latest = len(running)
        while running and ends[running[-1]] < ends[row] - tolerance:
            running.pop()
        overlaps += len(running) < latest
        if running:
            parent[row] = running[-1]
            depth[row] = depth[running[-1]] + 1
            ends[row] = min(ends[row], ends[running[-1]])
            if ends[row] == ends[running[-1]]:
                running.pop()
        if ends[row] > begin:
            running.append(row)
    advance(now, max(ends, default=0))
    return _Thread(
        np.array(parent, dtype=np.intp),
        np.array(depth, dtype=np.int64),
        np.array(ends, dtype=np.int64),
        np.array(self_time, dtype=np.int64),
        overlaps,
    )


def _totals(parent: Rows, depth: Integers, self_time: Integers) -> Integers:
    """Return self times summed over each span and all inside it, from the deepest level up."""
    total = self_time.copy()
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(depth.max(initial=0) + 2))
    for level in range(len(cuts) - 2, 0, -1):
        rows = by_depth[cuts[level] : cuts[level + 1]]
        np.add.at(total, parent[rows], total[rows])
    return total
