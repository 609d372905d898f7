"""How the segments of a device are filled at the moment of the snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from torchgauge.model.snapshot import Fragmentation, Segment
from torchgauge.trace.snapshot_contents import RecordedBlock, RecordedSegment


def segments(recorded: Iterable[RecordedSegment]) -> tuple[Segment, ...]:
    """Return the segments with what is in each, by address."""
    found = [_segment(one) for one in recorded]
    return tuple(sorted(found, key=lambda one: one.address))


def _segment(one: RecordedSegment) -> Segment:
    sizes = {"allocated": 0, "pending": 0, "inactive": 0}
    for block in one.blocks:
        sizes[block.state] += block.size
    free = [block.size for block in one.blocks if block.state == "inactive"]
    return Segment(
        address=one.address,
        size=one.size,
        stream=one.stream,
        kind=one.kind,
        pool=one.pool,
        expandable=one.expandable,
        allocated=sizes["allocated"],
        pending=sizes["pending"],
        free=sizes["inactive"],
        blocks=len(one.blocks),
        largest_free=max(free, default=0),
        runs=tuple(_runs(one.blocks)),
    )


def _runs(blocks: Iterable[RecordedBlock]) -> Iterator[int]:
    order = sorted(blocks, key=lambda block: block.address)
    for free, found in itertools.groupby(order, key=lambda block: block.state == "inactive"):
        size = sum(block.size for block in found)
        yield -size if free else size


def fragmentation(filled: Sequence[Segment], requested: int | None) -> Fragmentation:
    """Return what is held and not used; `requested` are the bytes that active blocks are for."""
    active = sum(one.allocated + one.pending for one in filled)
    return Fragmentation(
        internal=None if requested is None else active - requested,
        split=sum(one.free for one in filled if one.allocated + one.pending and not one.expandable),
        cached=sum(one.free for one in filled),
        largest=max((one.largest_free for one in filled), default=0),
    )


def active_blocks(recorded: Iterable[RecordedSegment]) -> list[RecordedBlock]:
    """Return the blocks that are in use or wait for another stream."""
    return [block for one in recorded for block in one.blocks if block.state != "inactive"]


def requested(blocks: Sequence[RecordedBlock]) -> int | None:
    """Return what the blocks were asked for as, None where not every one says it."""
    sizes = [block.requested for block in blocks]
    return sum(size for size in sizes if size is not None) if None not in sizes else None
