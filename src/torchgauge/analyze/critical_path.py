"""The chain of work that decided how long a recording took, read from its end to its begin.

What a piece of work waited for is the last of: its launch, the piece before it on its stream, and a
piece of another stream that ended just before it began. The host's way to a launch goes back on the
launching thread to the last time when it waited for a device, and from there to the piece of work
that it waited for; where it never waited, to the begin of the recording.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator

import numpy as np

from torchgauge.analyze.packed import packed
from torchgauge.analyze.pieces import Pieces
from torchgauge.analyze.synchronisations import Waits
from torchgauge.model.critical_path import CriticalPath, Link, PathItem
from torchgauge.model.events import ABSENT, Integers

# A longer pause than a device takes from one piece to the next, in ns: it waited for something.
PAUSE = 5_000
ITEMS = 50
_KINDS: tuple[Link, ...] = ("compute", "communication", "copy")


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the path in ns; `piece` is the device work that it is or leads to."""

    link: Link
    begin: int
    end: int
    piece: int


# Yields segments, and returns the piece of work that the path goes on with.
_Way = Generator[Segment, None, int | None]


def critical_path(pieces: Pieces, thread: Integers, waits: Waits, begin: int) -> Iterator[Segment]:
    """Yield the path, its end first; its segments follow each other without a gap.

    `thread` launched each piece (ABSENT where that is not known); `begin` is that of the recording.
    """
    if len(pieces):
        yield from _Walk(pieces, thread, waits, begin).path()


class _Walk:
    """One walk from the last end to the begin."""

    def __init__(self, pieces: Pieces, thread: Integers, waits: Waits, begin: int) -> None:
        self._first = begin
        by_end = np.argsort(pieces.end, kind="stable")
        self._begin, self._end = packed(pieces.begin), packed(pieces.end)
        self._launch, self._kind = packed(pieces.launch), packed(pieces.kind)
        self._thread, self._before = packed(thread), packed(_before(pieces))
        self._by_end, self._ends = packed(by_end), packed(pieces.end[by_end])
        self._waits: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        launching = set(self._thread)
        for low, high, on in zip(
            waits.begin.tolist(), waits.end.tolist(), waits.thread.tolist(), strict=True
        ):
            if on in launching:
                self._waits[on].append((high, low))
        self._at = self._ends[-1]
        self._seen = bytearray(len(pieces))

    def path(self) -> Iterator[Segment]:
        piece: int | None = self._by_end[-1]
        # Clocks that disagree could have a piece wait for itself.
        while piece is not None and not self._seen[piece]:
            self._seen[piece] = True
            piece = yield from self._device(piece)

    def _since(self, link: Link, begin: int, piece: int) -> Iterator[Segment]:
        """Yield what lasts from `begin` to where the path has come to."""
        if begin < self._at:
            yield Segment(link, begin, self._at, piece)
            self._at = begin

    def _device(self, piece: int) -> _Way:
        """Yield a piece of work and what it waited for; return the piece before it."""
        yield from self._since(_KINDS[self._kind[piece]], self._begin[piece], piece)
        begin, launch = self._begin[piece], self._launch[piece]
        before = self._before[piece]
        ready = self._end[before] if before != ABSENT else None
        if ready is None or begin - ready > PAUSE:
            other = self._ended(begin)
            if other not in (None, piece) and self._end[other] > max(ready or self._first, launch):
                before, ready = other, self._end[other]
        if launch != ABSENT and (ready is None or launch > ready):
            yield from self._since("launch", min(launch, begin), piece)
            return (yield from self._host(min(launch, begin), self._thread[piece], piece))
        if before == ABSENT:
            yield from self._since("pause", self._first, piece)
            return None
        yield from self._since("pause", self._end[before], piece)
        return before

    def _host(self, time: int, thread: int, piece: int) -> _Way:
        """Yield the host's way to a launch; return the piece of work that it waited for before."""
        known = self._waits[thread]
        place = bisect.bisect_right(known, (time, time)) - 1
        while place >= 0:
            end, begin = known[place]
            waited = self._ended(end)
            if waited is not None and self._end[waited] > begin:
                yield from self._since("host", self._end[waited], piece)
                return waited
            place -= 1
        yield from self._since("host", self._first, piece)
        return None

    def _ended(self, time: int) -> int | None:
        """Return the piece that ended last, at this time or before."""
        place = bisect.bisect_right(self._ends, time) - 1
        return self._by_end[place] if place >= 0 else None


def _before(pieces: Pieces) -> Integers:
    """Return the piece before each on its stream that had ended when it began, else ABSENT."""
    order = np.lexsort((pieces.begin, pieces.stream, pieces.device))
    found = np.full(len(pieces), ABSENT)
    here = pieces.take(order)
    same = (here.device[1:] == here.device[:-1]) & (here.stream[1:] == here.stream[:-1])
    ended = np.flatnonzero(same & (here.end[:-1] <= here.begin[1:]))
    found[order[ended + 1]] = order[ended]
    return found


def summary(
    path: Iterable[Segment], named: Callable[[Segment], Iterable[tuple[str, int]]]
) -> CriticalPath | None:
    """Return the record of a path, None of an empty one.

    `named` splits a segment into names and their ns.
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
    found = [
        PathItem(link=link, name=text, count=count, time=time * 1e-9)
        for (link, text), (count, time) in items.items()
    ]
    found.sort(key=lambda one: -one.time)
    return CriticalPath(
        length=sum(sums.values()) * 1e-9,
        compute=sums["compute"] * 1e-9,
        communication=sums["communication"] * 1e-9,
        copy=sums["copy"] * 1e-9,
        host=sums["host"] * 1e-9,
        launch=sums["launch"] * 1e-9,
        pause=sums["pause"] * 1e-9,
        items=tuple(found[:ITEMS]),
    )
