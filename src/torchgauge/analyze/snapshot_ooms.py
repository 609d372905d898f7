"""What a failed allocation asked for against what was free then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchgauge.analyze.snapshot_ranges import SMALL, Gap, Ranges, gaps
from torchgauge.analyze.snapshot_replay import Replay
from torchgauge.model.snapshot import OomCause
from torchgauge.trace.snapshot_contents import Events, RecordedSegment

# A program that goes on after its first failures shows nothing new with later ones.
MOST = 50


class Free(NamedTuple):
    """Free bytes in segments: in all, the largest piece, the largest that who asked may use."""

    cached: int
    largest: int
    usable: int


class Failed(NamedTuple):
    """A failed allocation: the number of its event, what was free, and why it failed."""

    event: int
    free: Free | None
    cause: OomCause


def failed(events: Events, segments: Sequence[RecordedSegment], played: Replay) -> list[Failed]:
    """Return the last failed allocations of the window, in order."""
    numbers = [at for at, action in enumerate(events.action) if action == "oom"][-MOST:]
    return list(reversed(list(_failed(events, segments, played, numbers)))) if numbers else []


def _failed(
    events: Events, segments: Sequence[RecordedSegment], played: Replay, numbers: Sequence[int]
) -> Iterator[Failed]:
    ranges = Ranges(segments)
    undone = len(events)
    for number in reversed(numbers):
        for event in range(undone - 1, number, -1):
            ranges.undo(events, event)
        undone = number + 1
        free = _free(ranges, events, played, number)
        asked, device = events.size[number], events.free[number]
        yield Failed(number, free, cause(asked, device, free))


def _free(ranges: Ranges, events: Events, played: Replay, number: int) -> Free | None:
    if ranges.contradicted:
        return None
    found = played.allocations
    blocks = [(found.address[at], found.size[at]) for at in found.alive(number)]
    pieces = list(gaps(ranges, blocks))
    stream, small = events.stream[number], events.size[number] <= SMALL

    def fits(gap: Gap) -> bool:
        return gap.stream == stream and gap.small in (small, None)

    return Free(
        cached=sum(gap.size for gap in pieces),
        largest=max((gap.size for gap in pieces), default=0),
        usable=max((gap.size for gap in pieces if fits(gap)), default=0),
    )


def cause(asked: int, device: int | None, free: Free | None) -> OomCause:
    """Return why an allocation failed, from bytes asked for and bytes free.

    "full": all that was free together is too little. "fragmentation": together it is enough, and
    no piece is. "elsewhere": a piece is large enough, and belongs to another stream or pool.
    "limit": there was room, so something else refused: a limit of the process, a private pool, or
    a segment that is taken from the device in larger steps.
    """
    if device is None or free is None:
        return "unknown"
    if device >= asked or free.usable >= asked:
        return "limit"
    if free.largest >= asked:
        return "elsewhere"
    return "fragmentation" if device + free.cached >= asked else "full"
