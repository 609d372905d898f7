"""The chain of work that decided how long a recording took, read from its end to its begin.

What a piece of work waited for is the last of: its launch, the piece before it on its stream, and
those of other streams that its stream was told to wait for, where the recording has such waits;
where it has none, a piece of another stream that ended just before it began. The host's way to a
launch goes back on the launching thread to the last time when it waited for a device, and from
there to the piece of work that it waited for; where it never waited, to the begin of the recording.

A communication kernel waits for the other ranks before it transfers: the first part of it is
waiting, as far as it took longer than the shortest of its kind.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator

import numpy as np

from torchgauge.analyze.trace.copies import packed
from torchgauge.analyze.trace.dependencies import Dependencies, Waits
from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.records.trace.breakdown import CriticalPath, Link, PathItem
from torchgauge.records.trace.events import ABSENT, Integers

# A longer pause than a device takes from one piece to the next, in ns: it waited for something.
PAUSE = 5_000
ITEMS = 50
_KINDS: tuple[Link, ...] = ("compute", "communication", "copy")


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the path in ns; `activity` is the device work that it is or leads to."""

    link: Link
    begin: int
    end: int
    activity: int


# Yields segments, and returns the piece of work that the path goes on with.
_SegmentGenerator = Generator[Segment, None, int | None]


def critical_path(
    activities: Activities, thread: Integers, waits: Waits, begin: int, dependencies: Dependencies
) -> Iterator[Segment]:
    """Yield the path, its end first; its segments follow each other without a gap.

    `thread` launched each piece (ABSENT where that is not known); `begin` is that of the recording.
    """
    if len(activities):
        yield from _Walk(activities, thread, waits, begin, dependencies).path()


class _Walk:
    """One walk from the last end to the begin."""

    def __init__(
        self,
        activities: Activities,
        thread: Integers,
        waits: Waits,
        begin: int,
        dependencies: Dependencies,
    ) -> None:
        self._first = begin
        self._dependencies = dependencies
        self._transfer = packed(dependencies.transfer)
        by_end = np.argsort(activities.end, kind="stable")
        self._begin, self._end = packed(activities.begin), packed(activities.end)
        self._launch, self._kind = packed(activities.launch), packed(activities.kind)
        self._due = packed(np.maximum(activities.due, activities.launch))
        self._thread, self._previous = packed(thread), packed(_previous_on_stream(activities))
        self._by_end, self._ends = packed(by_end), packed(activities.end[by_end])
        self._waits: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        launching = set(self._thread)
        columns = (waits.begin, waits.end, waits.thread, dependencies.awaited)
        for low, high, code, awaited in zip(*(c.tolist() for c in columns), strict=True):
            if code in launching:
                self._waits[code].append((high, low, awaited))
        self._position = self._ends[-1]
        self._visited = bytearray(len(activities))

    def path(self) -> Iterator[Segment]:
        activity: int | None = self._by_end[-1]
        # Clocks that disagree could have a piece wait for itself.
        while activity is not None and not self._visited[activity]:
            self._visited[activity] = True
            activity = yield from self._device(activity)

    def _since(self, link: Link, begin: int, activity: int) -> Iterator[Segment]:
        """Yield the segment from `begin` to the position that the path has reached."""
        if begin < self._position:
            yield Segment(link, begin, self._position, activity)
            self._position = begin

    def _device(self, activity: int) -> _SegmentGenerator:
        """Yield a piece of work and what it waited for; return the piece before it."""
        if self._kind[activity] == COMMUNICATION and self._transfer[activity] != ABSENT:
            arrived = self._end[activity] - self._transfer[activity]
            yield from self._since("communication", arrived, activity)
            yield from self._since("wait", self._begin[activity], activity)
        yield from self._since(_KINDS[self._kind[activity]], self._begin[activity], activity)
        begin, launch = self._begin[activity], self._launch[activity]
        previous = self._previous[activity]
        ready = min(self._end[previous], begin) if previous != ABSENT else None
        for awaited in self._dependencies.producers.get(activity, ()):
            if ready is None or self._end[awaited] > ready:
                previous, ready = awaited, min(self._end[awaited], begin)
        if not self._dependencies.recorded and (ready is None or begin - ready > PAUSE):
            other = self._last_ended(begin)
            if other not in (None, activity) and self._end[other] > max(
                ready or self._first, launch
            ):
                previous, ready = other, self._end[other]
        if launch == ABSENT and previous == ABSENT:  # what was done before was the host's
            yield from self._since("host", self._first, activity)
            return None
        waited = launch if ready is None else max(launch, ready)
        yield from self._since("pause", max(self._due[activity], waited), activity)
        yield from self._since("launch", waited, activity)
        if ready is None or launch > ready:
            return (yield from self._host(self._position, self._thread[activity], activity))
        return previous

    def _host(self, time: int, thread: int, activity: int) -> _SegmentGenerator:
        """Yield the host's way to a launch; return the piece of work that it waited for before."""
        waits = self._waits[thread]
        index = bisect.bisect_right(waits, (time, time, len(self._end))) - 1
        while index >= 0:
            end, begin, awaited = waits[index]
            waited = self._last_ended(end) if awaited == ABSENT else awaited
            if waited is not None and self._end[waited] > begin:
                yield from self._since("host", self._end[waited], activity)
                return waited
            index -= 1
        yield from self._since("host", self._first, activity)
        return None

    def _last_ended(self, time: int) -> int | None:
        """Return the piece that ended last, at this time or before."""
        index = bisect.bisect_right(self._ends, time) - 1
        return self._by_end[index] if index >= 0 else None


def _previous_on_stream(activities: Activities) -> Integers:
    """Return which of the pieces begun before each on its stream ended last, else ABSENT.

    It may end after the piece has begun: recorded times overlap by some ns, and a kernel may let
    the next one begin before its own end (programmatic dependent launch).
    """
    order = np.lexsort((-activities.end, activities.begin, activities.stream, activities.device))
    previous = np.full(len(activities), ABSENT)
    ordered = activities.take(order)
    other_stream = (np.diff(ordered.device) != 0) | (np.diff(ordered.stream) != 0)
    starts = [0, *(np.flatnonzero(other_stream) + 1).tolist()]
    for start, stop in itertools.pairwise([*starts, len(order)]):
        last_ended = _position_of_maximum_so_far(ordered.end[start:stop])
        previous[order[start + 1 : stop]] = order[start + last_ended[:-1]]
    return previous


def _position_of_maximum_so_far(values: Integers) -> Integers:
    """Return for each value where the largest up to it is, the latest of equal ones."""
    positions = np.arange(len(values))
    is_maximum = values == np.maximum.accumulate(values)
    return np.asarray(np.maximum.accumulate(np.where(is_maximum, positions, 0)))


def summary(
    path: Iterable[Segment],
    named: Callable[[Segment], Iterable[tuple[str, int]]],
    *,
    waits_are_known: bool,
) -> CriticalPath | None:
    """Return the record of a path, None of an empty one.

    `named` splits a segment into names and their ns; `waits_are_known`: of some communication the
    path has the waiting apart.
    """
    sums: defaultdict[str, int] = defaultdict(int)
    items: defaultdict[tuple[Link, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for segment in path:
        sums[segment.link] += segment.end - segment.begin
        for name, length in named(segment):
            count, time = items[segment.link, name]
            items[segment.link, name] = count + 1, time + length
    if not sums:
        return None
    path_items = [
        PathItem(link=link, name=text, count=count, time=time * 1e-9)
        for (link, text), (count, time) in items.items()
    ]
    path_items.sort(key=lambda path_item: -path_item.time)
    return CriticalPath(
        length=sum(sums.values()) * 1e-9,
        compute=sums["compute"] * 1e-9,
        communication=sums["communication"] * 1e-9,
        copy=sums["copy"] * 1e-9,
        host=sums["host"] * 1e-9,
        launch=sums["launch"] * 1e-9,
        pause=sums["pause"] * 1e-9,
        wait=sums["wait"] * 1e-9 if waits_are_known else None,
        items=tuple(path_items[:ITEMS]),
    )
