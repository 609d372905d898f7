"""Bytes alive and reserved over the recorded window, in few points."""

from __future__ import annotations

from itertools import pairwise

from torchgauge.analyze.snapshot.replay import Replay
from torchgauge.readers.snapshot.snapshot_contents import Events
from torchgauge.records.snapshot import TimelinePoint

MAX_POINTS = 2000


def seconds(events: Events) -> list[float] | None:
    """Return each event's time after the first; None where not all have one.

    Threads may record in another order than they looked at the clock: no time is before another's
    that was recorded earlier.
    """
    times = events.time
    if not times or None in times:
        return None
    elapsed, latest = [], times[0] or 0
    origin = latest
    for time in times:
        latest = max(latest, time or 0)
        elapsed.append((latest - origin) * 1e-6)
    return elapsed


def timeline(events: Events, played: Replay) -> tuple[TimelinePoint, ...]:
    """Return at most 2,000 points: the ends, and of equal stretches the highest and the lowest."""
    count = len(played.alive)
    times = seconds(events)
    level = played.alive.__getitem__
    stretches = min(count, (MAX_POINTS - 2) // 2)
    chosen = {0, count - 1}
    bounds = [count * index // stretches for index in range(stretches + 1)]
    for begin, end in pairwise(bounds):
        chosen |= {max(range(begin, end), key=level), min(range(begin, end), key=level)}
    return tuple(
        (
            float(index) if times is None else times[max(index - 1, 0)],
            level(index),
            None if played.reserved is None else played.reserved[index],
        )
        for index in sorted(chosen)
    )
