"""Replay a device's events: every allocation with its begin and end, bytes alive and reserved.

What the segments hold at the end is known, so what was there before the first event is too: a ring
buffer that forgot the begin, or a recording that was started late, costs names and no bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torchgauge.readers.snapshot.snapshot_contents import (
    ENDS,
    SEGMENTS,
    Events,
    RecordedBlock,
    RecordedSegment,
)

BEFORE = -1
UNKNOWN = -1  # the stack of what was allocated before the window and freed in it


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
