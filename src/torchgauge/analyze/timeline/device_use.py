"""Busy and idle time of devices: the union of the times in which any stream ran something."""

from __future__ import annotations

import statistics

import numpy as np

from torchgauge.records.timeline.device_use import DeviceUse
from torchgauge.records.trace.events import ABSENT, Events, Integers


def device_use(
    events: Events, rows: Integers, device: Integers, begins: Integers, ends: Integers
) -> tuple[DeviceUse, ...]:
    """Return by device the medians over steps of the time it was busy and idle.

    `rows` are the events of its work, `device` the numbers of their devices (ABSENT where the trace
    does not say), `begins` and `ends` (ns) those of the steps.
    """
    uses = []
    for number in np.unique(device).tolist():
        device_rows = rows[device == number]
        start = events.start[device_rows]
        end = start + events.duration[device_rows]
        steps = list(zip(begins.tolist(), ends.tolist(), strict=True))
        busy = [covered(start.clip(low, high), end.clip(low, high)) for low, high in steps]
        idle = [high - low - time for (low, high), time in zip(steps, busy, strict=True)]
        if steps:
            uses.append(
                DeviceUse(
                    device=None if number == ABSENT else number,
                    busy=statistics.median(busy) * 1e-9,
                    idle=statistics.median(idle) * 1e-9,
                )
            )
    return tuple(uses)


def covered(start: Integers, end: Integers) -> int:
    """Return the length of the union of the intervals, in their unit."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, latest = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - latest[:-1], 0)
    return int(latest[-1] - start[0] - gaps.sum())
