"""Stacks that allocate all through the window and let go of almost nothing: what may be a leak."""

from __future__ import annotations

from torchgauge.analyze.snapshot_replay import Replay
from torchgauge.analyze.snapshot_stacks import Stacks
from torchgauge.model.snapshot import Kept

FEWEST = 8  # blocks
MOST_FREED = 0.1
# What was allocated in one go, as a model or an optimizer's state is, is no leak.
LEAST_SPREAD = 0.5
_LASTING = ("parameters", "optimizer")


def kept(played: Replay, events: int, stacks: Stacks) -> tuple[Kept, ...]:
    """Return such stacks, the most bytes first; `events` is the number of all."""
    found = played.allocations
    seen: dict[int, list[int]] = {}  # blocks kept, bytes kept, allocations, first and last kept
    for begin, end, size, stack in zip(
        found.begin, found.end, found.size, found.stack, strict=True
    ):
        if begin < 0:
            continue
        one = seen.setdefault(stacks.row(stack), [0, 0, 0, begin, begin])
        one[2] += 1
        if end >= events:
            if not one[0]:
                one[3] = begin
            one[0] += 1
            one[1] += size
            one[4] = begin
    rows = stacks.rows
    listed = [
        Kept(stack=row, bytes=size, blocks=blocks, allocations=count)
        for row, (blocks, size, count, first, last) in seen.items()
        if blocks >= max(FEWEST, (1 - MOST_FREED) * count)
        and last - first >= LEAST_SPREAD * events
        and rows[row].frames
        and rows[row].category not in _LASTING
    ]
    return tuple(sorted(listed, key=lambda one: -one.bytes))
