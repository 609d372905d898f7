"""What grew between two snapshots, and the ranges that a program marked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torchgauge.readers.snapshot.snapshot_contents import RecordedBlock, RecordedSegment
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.snapshot import (
    Fragmentation,
    Growth,
    Mark,
    Segment,
    Snapshot,
    Stack,
    StackGrowth,
)


def segments(recorded: Iterable[RecordedSegment]) -> tuple[Segment, ...]:
    """Return the segments with what is in each, by address."""
    filled = [_segment(segment) for segment in recorded]
    return tuple(sorted(filled, key=lambda segment: segment.address))


def _segment(segment: RecordedSegment) -> Segment:
    sizes = {"allocated": 0, "pending": 0, "inactive": 0}
    for block in segment.blocks:
        sizes[block.state] += block.size
    free = [block.size for block in segment.blocks if block.state == "inactive"]
    return Segment(
        address=segment.address,
        size=segment.size,
        stream=segment.stream,
        kind=segment.kind,
        pool=segment.pool,
        expandable=segment.expandable,
        allocated=sizes["allocated"],
        pending=sizes["pending"],
        free=sizes["inactive"],
        blocks=len(segment.blocks),
        largest_free=max(free, default=0),
        runs=tuple(_runs(segment.blocks)),
    )


def _runs(blocks: Iterable[RecordedBlock]) -> Iterator[int]:
    order = sorted(blocks, key=lambda block: block.address)
    for free, run in itertools.groupby(order, key=lambda block: block.state == "inactive"):
        size = sum(block.size for block in run)
        yield -size if free else size


def fragmentation(filled: Sequence[Segment], requested: int | None) -> Fragmentation:
    """Return the bytes reserved and unused; `requested` is the requested size of active blocks."""
    active = sum(segment.allocated + segment.pending for segment in filled)
    return Fragmentation(
        internal=None if requested is None else active - requested,
        split=sum(
            segment.free
            for segment in filled
            if segment.allocated + segment.pending and not segment.expandable
        ),
        cached=sum(segment.free for segment in filled),
        largest=max((segment.largest_free for segment in filled), default=0),
    )


def active_blocks(recorded: Iterable[RecordedSegment]) -> list[RecordedBlock]:
    """Return the blocks that are in use or wait for another stream."""
    return [block for segment in recorded for block in segment.blocks if block.state != "inactive"]


def requested(blocks: Sequence[RecordedBlock]) -> int | None:
    """Return the requested bytes of all blocks; None where a block does not record it."""
    sizes = [block.requested for block in blocks]
    return sum(size for size in sizes if size is not None) if None not in sizes else None


def growth(before: Snapshot, after: Snapshot) -> Growth:
    """Return the change of the bytes of each stack, matched by device and frames."""
    old, new = _held(before), _held(after)
    changes = [
        StackGrowth(
            device=device,
            stack=stack,
            before=old.get((device, stack), (0, 0))[0],
            after=new.get((device, stack), (0, 0))[0],
            before_blocks=old.get((device, stack), (0, 0))[1],
            after_blocks=new.get((device, stack), (0, 0))[1],
        )
        for device, stack in dict.fromkeys((*old, *new))
    ]
    return Growth(
        baseline=before.name,
        current=after.name,
        before=sum(change.before for change in changes),
        after=sum(change.after for change in changes),
        reserved_before=sum(device.reserved for device in before.devices),
        reserved_after=sum(device.reserved for device in after.devices),
        stacks=tuple(sorted(filter(_has_changed, changes), key=lambda change: -change.growth)),
        warnings=tuple(_warnings(before, after)),
    )


def _held(snapshot: Snapshot) -> dict[tuple[int, Stack], tuple[int, int]]:
    return {
        (device.device, snapshot.stacks[holding.stack]): (holding.bytes, holding.blocks)
        for device in snapshot.devices
        for holding in device.alive
        if holding.stack is not None
    }


def _has_changed(stack: StackGrowth) -> bool:
    return (stack.before, stack.before_blocks) != (stack.after, stack.after_blocks)


def _warnings(before: Snapshot, after: Snapshot) -> Iterator[MeasurementWarning]:
    for snapshot in (before, after):
        if snapshot.stacks and not any(stack.frames for stack in snapshot.stacks):
            yield MeasurementWarning(
                id="no-stacks",
                message=f"{snapshot.name} has no stacks: growth cannot be attributed.",
                remedy="Record with torch.cuda.memory._record_memory_history().",
            )


BEGIN, END = "START", "END"


@dataclass(frozen=True, slots=True)
class MarkedRange:
    """`calls` ranges of one name that overlap, in seconds after the window's begin.

    `begin` is None where only an end was kept, `end` where only a begin was; both are None where
    the moment is not known. A moment that is neither begin nor end is one that ends as it begins.
    """

    name: str
    begin: float | None
    end: float | None
    calls: int = 1


def ranges(marks: Sequence[Mark], device: int) -> list[MarkedRange]:
    """Return the ranges marked on a device, and those of no device, by time; unknown times last."""
    device_marks = [mark for mark in marks if mark.device in (device, None)]
    timed = sorted(
        (mark for mark in device_marks if mark.time is not None), key=lambda mark: mark.time or 0.0
    )
    merged: list[MarkedRange] = []
    open_ranges: dict[str, tuple[int, int]] = {}  # by name: index in `merged`, depth
    for mark in timed:
        index, depth = open_ranges.pop(mark.name, (len(merged), 0))
        if mark.stage == BEGIN:
            if depth:
                merged[index] = replace(merged[index], calls=merged[index].calls + 1)
            else:
                merged.append(MarkedRange(mark.name, mark.time, None))
            open_ranges[mark.name] = index, depth + 1
        elif mark.stage == END:
            if depth > 1:
                open_ranges[mark.name] = index, depth - 1
            elif depth:
                merged[index] = replace(merged[index], end=mark.time)
            else:
                merged.append(MarkedRange(mark.name, None, mark.time))
        else:
            if depth:
                open_ranges[mark.name] = index, depth
            merged.append(MarkedRange(mark.name, mark.time, mark.time))
    return merged + [
        MarkedRange(mark.name, None, None) for mark in device_marks if mark.time is None
    ]
