"""Why allocations failed: the bytes asked for against the bytes free at that time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchgauge.analyze.snapshot.replay import Replay
from torchgauge.analyze.snapshot.segment_ranges import SMALL, Gap, Ranges, gaps
from torchgauge.readers.snapshot.snapshot_contents import Events, RecordedSegment
from torchgauge.records.snapshot import OomCause

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
