"""The address ranges of a device's segments at an earlier event, by undoing later events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from torchgauge.analyze.snapshot.replay import Replay
from torchgauge.readers.snapshot.snapshot_contents import SEGMENTS, Events, RecordedSegment
from torchgauge.records.snapshot import OomCause

# The allocator's own: blocks are multiples of 512 bytes, those up to 1 MiB come from segments of
# 2 MiB, and larger ones from others.
ROUNDING = 512
SMALL = 1 << 20
_SMALL_SEGMENT = 1 << 21
_MIDDLE, _LARGE_SEGMENT = 10 << 20, 20 << 20


def segment_for(requested: int) -> int:
    """Return the bytes that torch takes from the device for an allocation, by its defaults."""
    if SMALL < requested < _MIDDLE:
        return _LARGE_SEGMENT
    return -(-requested // _SMALL_SEGMENT) * _SMALL_SEGMENT


class Range(NamedTuple):
    """Addresses from `start` to before `end`; `grows` where it belongs to an expandable segment.

    `small`: for blocks up to 1 MiB; None where it cannot be told.
    """

    start: int
    end: int
    stream: int
    grows: bool
    small: bool | None


class Gap(NamedTuple):
    """Contiguous free bytes, with their stream and pool."""

    size: int
    stream: int
    small: bool | None


class Ranges:
    """The ranges that are reserved, sorted, none over another."""

    def __init__(self, segments: Iterable[RecordedSegment]) -> None:
        self._ranges: list[Range] = []
        self.contradicted = False
        for segment in segments:
            small = segment.kind == "small" if segment.kind else None
            end = segment.address + segment.size
            self._add(Range(segment.address, end, segment.stream, segment.expandable, small))

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
        changed = Range(start, start + size, events.stream[event], grows, small)
        if sign > 0:
            self._remove(changed)
        else:
            self._add(changed)

    def _add(self, added: Range) -> None:
        index = bisect_left(self._ranges, added)
        around = self._ranges[max(index - 1, 0) : index + 1]
        if any(other.start < added.end and added.start < other.end for other in around):
            self.contradicted = True
            return
        # Parts of an expandable segment are one piece where they touch.
        for other in around:
            touches = other.end == added.start or added.end == other.start
            if touches and other.grows and added.grows and other.stream == added.stream:
                self._ranges.remove(other)
                start, end = min(added.start, other.start), max(added.end, other.end)
                added = added._replace(start=start, end=end, small=other.small)
        self._ranges.insert(bisect_left(self._ranges, added), added)

    def _remove(self, removed: Range) -> None:
        index = bisect_right(self._ranges, removed.start, key=lambda other: other.start) - 1
        other = self._ranges[index] if index >= 0 else None
        if other is None or other.end < removed.end:
            self.contradicted = True
            return
        remainders = (other._replace(end=removed.start), other._replace(start=removed.end))
        self._ranges[index : index + 1] = [part for part in remainders if part.start < part.end]


def gaps(ranges: Iterable[Range], blocks: Iterable[tuple[int, int]]) -> Iterator[Gap]:
    """Yield the gaps between blocks of (address, bytes asked for).

    It is an upper bound: a block may be larger than what it was asked for as, rounded.
    """
    placed = sorted(blocks)
    starts = [address for address, _ in placed]
    for reserved in ranges:
        cursor = reserved.start
        for address, size in placed[
            bisect_left(starts, reserved.start) : bisect_left(starts, reserved.end)
        ]:
            if address > cursor:
                yield Gap(address - cursor, reserved.stream, reserved.small)
            cursor = max(cursor, address + -(-size // ROUNDING) * ROUNDING)
        if reserved.end > cursor:
            yield Gap(reserved.end - cursor, reserved.stream, reserved.small)


# A program that goes on after its first failures shows nothing new with later ones.
MAX_FAILURES = 50


class Free(NamedTuple):
    """Free bytes in segments: in all, the largest gap, the largest gap usable by the allocation."""

    cached: int
    largest: int
    usable: int


class FailedAllocation(NamedTuple):
    """A failed allocation: the number of its event, what was free, and why it failed."""

    event: int
    free: Free | None
    cause: OomCause


def failed_allocations(
    events: Events, segments: Sequence[RecordedSegment], played: Replay
) -> list[FailedAllocation]:
    """Return the last failed allocations of the window, in order."""
    failures = [event for event, action in enumerate(events.action) if action == "oom"]
    newest_first = _newest_first(events, segments, played, failures[-MAX_FAILURES:])
    return list(reversed(list(newest_first))) if failures else []


def _newest_first(
    events: Events, segments: Sequence[RecordedSegment], played: Replay, numbers: Sequence[int]
) -> Iterator[FailedAllocation]:
    ranges = Ranges(segments)
    undone = len(events)
    for number in reversed(numbers):
        for event in range(undone - 1, number, -1):
            ranges.undo(events, event)
        undone = number + 1
        free = _free(ranges, events, played, number)
        requested, device = events.size[number], events.free[number]
        yield FailedAllocation(number, free, cause(requested, device, free))


def _free(ranges: Ranges, events: Events, played: Replay, number: int) -> Free | None:
    if ranges.contradicted:
        return None
    allocations = played.allocations
    blocks = [
        (allocations.address[row], allocations.size[row]) for row in allocations.alive(number)
    ]
    free_gaps = list(gaps(ranges, blocks))
    stream, small = events.stream[number], events.size[number] <= SMALL

    def fits(gap: Gap) -> bool:
        return gap.stream == stream and gap.small in (small, None)

    return Free(
        cached=sum(gap.size for gap in free_gaps),
        largest=max((gap.size for gap in free_gaps), default=0),
        usable=max((gap.size for gap in free_gaps if fits(gap)), default=0),
    )


def cause(requested: int, device: int | None, free: Free | None) -> OomCause:
    """Return why an allocation failed, from bytes asked for and bytes free.

    "full": all that was free together is too little. "fragmentation": together it is enough, and
    no piece is. "elsewhere": a piece is large enough, and belongs to another stream or pool.
    "limit": there was room, so something else refused: a limit of the process, a private pool, or
    a segment that is taken from the device in larger steps.
    """
    if device is None or free is None:
        return "unknown"
    if device >= requested or free.usable >= requested:
        return "limit"
    if free.largest >= requested:
        return "elsewhere"
    return "fragmentation" if device + free.cached >= requested else "full"
