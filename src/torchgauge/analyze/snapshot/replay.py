"""Replay a device's events: allocations, bytes alive, and segments at an earlier event.

What the segments hold at the end is known, so what was there before the first event is too: a ring
buffer that forgot the begin, or a recording that was started late, costs names and no bytes.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from torchgauge.readers.snapshot.snapshot_contents import (
    ENDS,
    SEGMENTS,
    Events,
    RecordedBlock,
    RecordedSegment,
)
from torchgauge.records.snapshot import OomCause

BEFORE = -1
UNKNOWN = -1  # the stack of what was allocated before the window and freed in it
# The allocator's own: blocks are multiples of 512 bytes, those up to 1 MiB come from segments of
# 2 MiB, and larger ones from others.
ROUNDING = 512
SMALL = 1 << 20
_SMALL_SEGMENT = 1 << 21
_MIDDLE, _LARGE_SEGMENT = 10 << 20, 20 << 20


@dataclass
class Allocations:
    """Columns: `begin` and `end` are numbers of events, BEFORE the first, or after the last."""

    begin: list[int]
    end: list[int]
    address: list[int]
    size: list[int]
    stack: list[int | None]

    def alive(self, event: int) -> Iterator[int]:
        """Yield the rows of the allocations that are alive after an event."""
        for row, (begin, end) in enumerate(zip(self.begin, self.end, strict=True)):
            if begin <= event < end:
                yield row


@dataclass
class Replay:
    """What was alive and reserved before the first event, and after each.

    `reserved` is None where the events contradict the segments. `lost` counts contradictions:
    double frees, addresses given twice, blocks without their event.
    """

    allocations: Allocations
    before_blocks: int
    alive: list[int]
    reserved: list[int] | None
    lost: int


def replay(events: Events, segments: Sequence[RecordedSegment]) -> Replay:
    """Return a device's events as allocations; sizes are the requested ones."""
    blocks = {
        block.address: block
        for segment in segments
        for block in segment.blocks
        if block.state != "inactive"
    }
    allocations, change, lost = _paired(events, _end_of(events, blocks.values()))
    lost += _add_unrecorded(allocations, blocks, len(events))
    before = [row for row, begin in enumerate(allocations.begin) if begin == BEFORE]
    base = sum(allocations.size[row] for row in before)
    alive = list(accumulate(change, initial=base))
    return Replay(
        allocations=allocations,
        before_blocks=len(before),
        alive=alive,
        reserved=_reserved(events, segments, alive),
        lost=lost,
    )


def _end_of(events: Events, blocks: Iterable[RecordedBlock]) -> str:
    """Return the event that ends an allocation; a recording may leave out either kind."""
    completed, requested = ENDS
    if completed in events.action or any(block.state == "pending" for block in blocks):
        return completed
    return requested


def _paired(events: Events, ends: str) -> tuple[Allocations, list[int], int]:
    """Return allocations, the change of bytes at each event, and the number of contradictions."""
    last = len(events)
    allocations = Allocations([], [], [], [], [])
    change = [0] * last
    live: dict[int, int] = {}
    seen_addresses: set[int] = set()
    lost = 0
    for event, action in enumerate(events.action):
        if action not in ("alloc", ends):
            continue
        address = events.address[event]
        ended = live.pop(address, None)
        if ended is not None:
            allocations.end[ended] = event
            change[event] -= allocations.size[ended]
            lost += action == "alloc"
        elif action == ends and address in seen_addresses:
            lost += 1
        elif action == ends:
            _add(allocations, BEFORE, event, address, events.size[event], UNKNOWN)
            change[event] -= events.size[event]
        if action == "alloc":
            live[address] = len(allocations.size)
            _add(allocations, event, last, address, events.size[event], events.stack[event])
            change[event] += events.size[event]
        seen_addresses.add(address)
    return allocations, change, lost


def _add(
    allocations: Allocations, begin: int, end: int, address: int, size: int, stack: int | None
) -> None:
    allocations.begin.append(begin)
    allocations.end.append(end)
    allocations.address.append(address)
    allocations.size.append(size)
    allocations.stack.append(stack)


def _add_unrecorded(allocations: Allocations, blocks: dict[int, RecordedBlock], last: int) -> int:
    """Add the blocks without a recorded allocation; return how many contradict the events."""
    recorded_addresses = set(allocations.address)
    alive = {allocations.address[row] for row in allocations.alive(last - 1)}
    lost = len(alive - blocks.keys())
    for address, block in blocks.items():
        if address in alive:
            continue
        if address in recorded_addresses:
            lost += 1  # an event of it is missing: when it began is not known
            continue
        size = block.size if block.requested is None else block.requested
        _add(allocations, BEFORE, last, address, size, block.stack)
    return lost


def _reserved(
    events: Events, segments: Sequence[RecordedSegment], alive: Sequence[int]
) -> list[int] | None:
    """Return bytes reserved; None where they are less than what is alive: events are missing."""
    pairs = zip(events.action, events.size, strict=True)
    change = [SEGMENTS.get(action, 0) * size for action, size in pairs]
    base = sum(segment.size for segment in segments) - sum(change)
    levels = list(accumulate(change, initial=base))
    return None if any(map(operator.lt, levels, alive)) else levels


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
