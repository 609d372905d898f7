"""The one source of time, passed in so that tests can decide what time it is."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock."""

    def now(self) -> int:
        """Return the time in integer nanoseconds from an arbitrary start."""


class SystemClock:
    """The monotonic clock of the machine, `time.perf_counter_ns`."""

    now = staticmethod(time.perf_counter_ns)


class CpuClock:
    """The time for which the threads of this process ran, whatever else runs on the machine."""

    now = staticmethod(time.process_time_ns)


def resolution(clock: Clock, readings: int = 200) -> float:
    """Return the smallest step seen between two different readings, in seconds."""
    steps = []
    for _ in range(readings):
        start = clock.now()
        for _ in range(1000):
            if (end := clock.now()) != start:
                steps.append(end - start)
                break
    return min(steps) * 1e-9 if steps else 0.0
