"""Allocated and reserved memory of each device over a recording, as its allocator reported it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchgauge.records.trace.events import ABSENT, Events, Integers
from torchgauge.records.trace.trace import MemoryUse

MAX_POINTS = 1000  # points of a timeline
_CPU = 0  # torch's number


def memory_uses(events: Events, begin: int) -> Iterator[MemoryUse]:
    """Yield the memory of the host, then that of each device, from `begin` (ns) on.

    Left out is an allocator that reported no totals, as those of old traces.
    """
    memory = events.memory
    pairs = set(zip(memory.device_type.tolist(), memory.device.tolist(), strict=True))
    for kind, device in sorted(pairs):
        on_device = (memory.device_type == kind) & (memory.device == device)
        rows = np.flatnonzero(on_device & (memory.allocated != ABSENT))
        if not len(rows) or not memory.allocated[rows].any():
            continue
        rows = rows[np.lexsort((memory.index[rows], memory.time[rows]))]
        size = memory.size[rows].astype(np.int64)
        before = int(memory.allocated[rows[0]] - size[0])
        if before > memory.allocated[rows].max():  # the first event is a free, from the peak
            rows = np.insert(rows, 0, rows[0])
        allocated, reserved = memory.allocated[rows].astype(np.int64), memory.reserved[rows]
        if len(rows) > len(size):
            allocated[0] = before
        has_reserved = (reserved != ABSENT) & bool((reserved > 0).any())
        time = (memory.time[rows] - begin) * 1e-9
        peak = int(allocated.argmax())
        yield MemoryUse(
            device=None if kind == _CPU else device,
            before=before,
            peak=int(allocated[peak]),
            peak_at=float(time[peak]),
            after=int(allocated[-1]),
            reserved=int(reserved.max()) if has_reserved.any() else None,
            allocations=int((size > 0).sum()),
            allocated=int(size[size > 0].sum()),
            timeline=tuple(
                (
                    float(time[point]),
                    int(allocated[point]),
                    int(reserved[point]) if has_reserved[point] else None,
                )
                for point in _sampled_points(allocated).tolist()
            ),
        )


def _sampled_points(levels: Integers) -> Integers:
    """Return the places of the ends, and of equal stretches the highest and the lowest."""
    count = len(levels)
    if count <= MAX_POINTS:
        return np.arange(count)
    stretches = np.array_split(np.arange(count), (MAX_POINTS - 2) // 2)
    extremes = [
        stretch[offset]
        for stretch in stretches
        for offset in (levels[stretch].argmin(), levels[stretch].argmax())
    ]
    return np.unique(np.array([0, *extremes, count - 1]))
