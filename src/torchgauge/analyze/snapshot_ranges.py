"""Which addresses a device's segments covered at an earlier event, by undoing what came after."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torchgauge.trace.snapshot_contents import SEGMENTS, Events, RecordedSegment

# The allocator's own: blocks are multiples of 512 bytes, those up to 1 MiB come from segments of
# 2 MiB, and larger ones from others.
ROUNDING = 512
SMALL = 1 << 20
_SMALL_SEGMENT = 1 << 21
_MIDDLE, _LARGE_SEGMENT = 10 << 20, 20 << 20


def segment_for(asked: int) -> int:
    """Return the bytes that torch takes from the device for an allocation, by its defaults."""
    if SMALL < asked < _MIDDLE:
        return _LARGE_SEGMENT
    return -(-asked // _SMALL_SEGMENT) * _SMALL_SEGMENT


class Range(NamedTuple):
    """Addresses from `start` to before `end`; `grows` where it is of an expandable segment.

    `small`: for blocks up to 1 MiB; None where it cannot be told.
    """

    start: int
    end: int
    stream: int
    grows: bool
    small: bool | None


class Gap(NamedTuple):
    """Free bytes in one piece, and whose they are."""

    size: int
    stream: int
    small: bool | None


class Ranges:
    """The ranges that are reserved, sorted, none over another."""

    def __init__(self, segments: Iterable[RecordedSegment]) -> None:
        self._ranges: list[Range] = []
        self.contradicted = False
        for one in segments:
            small = one.kind == "small" if one.kind else None
            end = one.address + one.size
            self._add(Range(one.address, end, one.stream, one.expandable, small))

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def undo(self, events: Events, event: int) -> None:
        """Go back to before an event of the segments; other events change nothing."""
        sign = SEGMENTS.get(events.action[event], 0)
        if not sign:
            return
        start = events.address[event]
        grows = events.action[event] in ("segment_map", "segment_unmap")
        size = events.size[event]
        small = None if grows else size <= _SMALL_SEGMENT
        one = Range(start, start + size, events.stream[event], grows, small)
        if sign > 0:
            self._remove(one)
        else:
            self._add(one)

    def _add(self, one: Range) -> None:
        at = bisect_left(self._ranges, one)
        around = self._ranges[max(at - 1, 0) : at + 1]
        if any(other.start < one.end and one.start < other.end for other in around):
            self.contradicted = True
            return
        # Parts of an expandable segment are one piece where they touch.
        for other in around:
            touches = other.end == one.start or one.end == other.start
            if touches and other.grows and one.grows and other.stream == one.stream:
                self._ranges.remove(other)
                start, end = min(one.start, other.start), max(one.end, other.end)
                one = one._replace(start=start, end=end, small=other.small)
        self._ranges.insert(bisect_left(self._ranges, one), one)

    def _remove(self, one: Range) -> None:
        at = bisect_right(self._ranges, one.start, key=lambda other: other.start) - 1
        other = self._ranges[at] if at >= 0 else None
        if other is None or other.end < one.end:
            self.contradicted = True
            return
        rest = (other._replace(end=one.start), other._replace(start=one.end))
        self._ranges[at : at + 1] = [part for part in rest if part.start < part.end]


def gaps(ranges: Iterable[Range], blocks: Iterable[tuple[int, int]]) -> Iterator[Gap]:
    """Yield what is free between blocks of (address, bytes asked for).

    It is an upper bound: a block may be larger than what it was asked for as, rounded.
    """
    placed = sorted(blocks)
    starts = [address for address, _ in placed]
    for one in ranges:
        cursor = one.start
        for address, size in placed[bisect_left(starts, one.start) : bisect_left(starts, one.end)]:
            if address > cursor:
                yield Gap(address - cursor, one.stream, one.small)
            cursor = max(cursor, address + -(-size // ROUNDING) * ROUNDING)
        if one.end > cursor:
            yield Gap(one.end - cursor, one.stream, one.small)
