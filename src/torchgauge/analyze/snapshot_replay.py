"""A device's events once more: every allocation with its begin and end, bytes alive and reserved.

What the segments hold at the end is known, so what was there before the first event is too: a ring
buffer that forgot the begin, or a recording that was started late, costs names and no bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torchgauge.trace.snapshot_contents import (
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
        """Yield those that are alive after an event."""
        for at, (begin, end) in enumerate(zip(self.begin, self.end, strict=True)):
            if begin <= event < end:
                yield at


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
    """Return a device's events as allocations; sizes are what was asked for."""
    blocks = {
        block.address: block
        for segment in segments
        for block in segment.blocks
        if block.state != "inactive"
    }
    found, change, lost = _paired(events, _end_of(events, blocks.values()))
    lost += _at_the_end(found, blocks, len(events))
    before = [at for at, begin in enumerate(found.begin) if begin == BEFORE]
    base = sum(found.size[at] for at in before)
    alive = list(accumulate(change, initial=base))
    return Replay(
        allocations=found,
        before_blocks=len(before),
        alive=alive,
        reserved=_reserved(events, segments, alive),
        lost=lost,
    )


def _end_of(events: Events, blocks: Iterable[RecordedBlock]) -> str:
    """Return the event that ends an allocation; a recording may have been told to skip some."""
    completed, requested = ENDS
    if completed in events.action or any(block.state == "pending" for block in blocks):
        return completed
    return requested


def _paired(events: Events, ends: str) -> tuple[Allocations, list[int], int]:
    """Return allocations, what each event changes, and how many events contradict others."""
    last = len(events)
    found = Allocations([], [], [], [], [])
    change = [0] * last
    live: dict[int, int] = {}
    seen: set[int] = set()
    lost = 0
    for at, action in enumerate(events.action):
        if action not in ("alloc", ends):
            continue
        address = events.address[at]
        ended = live.pop(address, None)
        if ended is not None:
            found.end[ended] = at
            change[at] -= found.size[ended]
            lost += action == "alloc"
        elif action == ends and address in seen:
            lost += 1
        elif action == ends:
            _add(found, BEFORE, at, address, events.size[at], UNKNOWN)
            change[at] -= events.size[at]
        if action == "alloc":
            live[address] = len(found.size)
            _add(found, at, last, address, events.size[at], events.stack[at])
            change[at] += events.size[at]
        seen.add(address)
    return found, change, lost


def _add(
    found: Allocations, begin: int, end: int, address: int, size: int, stack: int | None
) -> None:
    found.begin.append(begin)
    found.end.append(end)
    found.address.append(address)
    found.size.append(size)
    found.stack.append(stack)


def _at_the_end(found: Allocations, blocks: dict[int, RecordedBlock], last: int) -> int:
    """Add what the blocks hold and no event tells of; return how many contradict the events."""
    known = set(found.address)
    alive = {found.address[at] for at in found.alive(last - 1)}
    lost = len(alive - blocks.keys())
    for address, block in blocks.items():
        if address in alive:
            continue
        if address in known:
            lost += 1  # an event of it is missing: when it began is not known
            continue
        size = block.size if block.requested is None else block.requested
        _add(found, BEFORE, last, address, size, block.stack)
    return lost


def _reserved(
    events: Events, segments: Sequence[RecordedSegment], alive: Sequence[int]
) -> list[int] | None:
    """Return bytes reserved; None where they are less than what is alive: events are missing."""
    pairs = zip(events.action, events.size, strict=True)
    change = [SEGMENTS.get(action, 0) * size for action, size in pairs]
    base = sum(one.size for one in segments) - sum(change)
    levels = list(accumulate(change, initial=base))
    return None if any(map(operator.lt, levels, alive)) else levels
