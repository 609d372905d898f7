"""How the segments of a device are filled at the moment of the snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from torchgauge.readers.snapshot.snapshot_contents import RecordedBlock, RecordedSegment
from torchgauge.records.snapshot import Fragmentation, Segment


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
