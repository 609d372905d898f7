"""Possible leaks: stacks that allocate all through the window and free almost nothing."""

from __future__ import annotations

from torchgauge.analyze.snapshot.replay import Replay
from torchgauge.analyze.snapshot.user_frames import Stacks
from torchgauge.records.snapshot import PossibleLeak

MIN_BLOCKS = 8
MAX_FREED_SHARE = 0.1
# What was allocated in one go, as a model or an optimizer's state is, is no leak.
MIN_SPREAD = 0.5
_LASTING = ("parameters", "optimizer")


def possible_leaks(played: Replay, events: int, stacks: Stacks) -> tuple[PossibleLeak, ...]:
    """Return the possible leaks, the most bytes first; `events` is the number of all."""
    by_stack: dict[int, list[int]] = {}  # blocks kept, bytes kept, allocations, first and last kept
    for begin, end, size, stack in zip(
        played.allocations.begin,
        played.allocations.end,
        played.allocations.size,
        played.allocations.stack,
        strict=True,
    ):
        if begin < 0:
            continue
        counts = by_stack.setdefault(stacks.row(stack), [0, 0, 0, begin, begin])
        counts[2] += 1
        if end >= events:
            if not counts[0]:
                counts[3] = begin
            counts[0] += 1
            counts[1] += size
            counts[4] = begin
    rows = stacks.rows
    listed = [
        PossibleLeak(stack=row, bytes=size, blocks=blocks, allocations=count)
        for row, (blocks, size, count, first, last) in by_stack.items()
        if blocks >= max(MIN_BLOCKS, (1 - MAX_FREED_SHARE) * count)
        and last - first >= MIN_SPREAD * events
        and rows[row].frames
        and rows[row].category not in _LASTING
    ]
    return tuple(sorted(listed, key=lambda leak: -leak.bytes))
