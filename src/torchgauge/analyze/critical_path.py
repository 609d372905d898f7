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
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

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


def critical_path(pieces: Pieces, thread: Integers, waits: Waits, begin: int) -> list[Segment]:
    """Return the path, its end first; its segments follow each other without a gap.

    `thread` launched each piece (ABSENT where that is not known); `begin` is that of the recording.
    """
    return _Walk(pieces, thread, waits, begin).path() if len(pieces) else []


class _Walk:
    """One walk from the last end to the begin."""

    def __init__(self, pieces: Pieces, thread: Integers, waits: Waits, begin: int) -> None:
        self._first = begin
        self._begin, self._end = pieces.begin.tolist(), pieces.end.tolist()
        self._launch, self._kind = pieces.launch.tolist(), pieces.kind.tolist()
        self._thread = thread.tolist()
        self._before = _before(pieces)
        self._by_end = np.argsort(pieces.end, kind="stable").tolist()
        self._ends = [self._end[piece] for piece in self._by_end]
        self._waits: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        launching = set(self._thread)
        for low, high, on in zip(
            waits.begin.tolist(), waits.end.tolist(), waits.thread.tolist(), strict=True
        ):
            if on in launching:
                self._waits[on].append((high, low))
        self._segments: list[Segment] = []
        self._seen = bytearray(len(pieces))

    def path(self) -> list[Segment]:
        piece: int | None = self._by_end[-1]
        # Clocks that disagree could have a piece wait for itself.
        while piece is not None and not self._seen[piece]:
            self._seen[piece] = True
            piece = self._device(piece)
        return self._segments

    def _add(self, link: Link, begin: int, piece: int) -> None:
        """Add what lasts from `begin` to where the path has come to."""
        end = self._segments[-1].begin if self._segments else self._end[piece]
        if begin < end:
            self._segments.append(Segment(link, begin, end, piece))

    def _device(self, piece: int) -> int | None:
        """Add a piece of work and what it waited for; return the piece before it."""
        self._add(_KINDS[self._kind[piece]], self._begin[piece], piece)
        begin, launch = self._begin[piece], self._launch[piece]
        before = self._before[piece]
        ready = self._end[before] if before is not None else None
        if ready is None or begin - ready > PAUSE:
            other = self._ended(begin)
            if other not in (None, piece) and self._end[other] > max(ready or self._first, launch):
                before, ready = other, self._end[other]
        if launch != ABSENT and (ready is None or launch > ready):
            self._add("launch", min(launch, begin), piece)
            return self._host(min(launch, begin), self._thread[piece], piece)
        if before is None:
            self._add("pause", self._first, piece)
            return None
        self._add("pause", self._end[before], piece)
        return before

    def _host(self, time: int, thread: int, piece: int) -> int | None:
        """Add the host's way to a launch; return the piece of work that it waited for before."""
        known = self._waits[thread]
        place = bisect.bisect_right(known, (time, time)) - 1
        while place >= 0:
            end, begin = known[place]
            waited = self._ended(end)
            if waited is not None and self._end[waited] > begin:
                self._add("host", self._end[waited], piece)
                return waited
            place -= 1
        self._add("host", self._first, piece)
        return None

    def _ended(self, time: int) -> int | None:
        """Return the piece that ended last, at this time or before."""
        place = bisect.bisect_right(self._ends, time) - 1
        return self._by_end[place] if place >= 0 else None


def _before(pieces: Pieces) -> list[int | None]:
    """Return the piece before each on its stream that had ended when it began."""
    order = np.lexsort((pieces.begin, pieces.stream, pieces.device))
    found: list[int | None] = [None] * len(pieces)
    here, previous = pieces.take(order), order.tolist()
    same = (here.device[1:] == here.device[:-1]) & (here.stream[1:] == here.stream[:-1])
    ended = same & (here.end[:-1] <= here.begin[1:])
    for place in np.flatnonzero(ended).tolist():
        found[previous[place + 1]] = previous[place]
    return found


def summary(
    path: list[Segment], named: Callable[[Segment], Iterable[tuple[str, int]]]
) -> CriticalPath | None:
    """Return the record of a path; `named` splits a segment into names and their ns."""
    if not path:
        return None
    sums: defaultdict[str, int] = defaultdict(int)
    items: defaultdict[tuple[Any, str], list[int]] = defaultdict(list)
    for segment in path:
        sums[segment.link] += segment.end - segment.begin
        for name, length in named(segment):
            items[segment.link, name].append(length)
    found = [
        PathItem(link=link, name=text, count=len(lengths), time=sum(lengths) * 1e-9)
        for (link, text), lengths in items.items()
    ]
    found.sort(key=lambda one: -one.time)
    return CriticalPath(
        length=(path[0].end - path[-1].begin) * 1e-9,
        compute=sums["compute"] * 1e-9,
        communication=sums["communication"] * 1e-9,
        copy=sums["copy"] * 1e-9,
        host=sums["host"] * 1e-9,
        launch=sums["launch"] * 1e-9,
        pause=sums["pause"] * 1e-9,
        items=tuple(found[:ITEMS]),
    )
