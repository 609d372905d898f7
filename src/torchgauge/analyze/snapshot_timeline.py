"""Bytes alive and reserved over the recorded window, in few points."""

from __future__ import annotations

from itertools import pairwise

from torchgauge.analyze.snapshot_replay import Replay
from torchgauge.model.snapshot import TimelinePoint
from torchgauge.trace.snapshot_contents import Events

MOST = 2000


def seconds(events: Events) -> list[float] | None:
    """Return each event's time after the first; None where not all have one.

    Threads may record in another order than they looked at the clock: no time is before another's
    that was recorded earlier.
    """
    times = events.time
    if not times or None in times:
        return None
    found, latest = [], times[0] or 0
    origin = latest
    for time in times:
        latest = max(latest, time or 0)
        found.append((latest - origin) * 1e-6)
    return found


def timeline(events: Events, played: Replay) -> tuple[TimelinePoint, ...]:
    """Return at most 2,000 points: the ends, and of equal stretches the highest and the lowest."""
    count = len(played.alive)
    times = seconds(events)
    level = played.alive.__getitem__
    stretches = min(count, (MOST - 2) // 2)
    kept = {0, count - 1}
    bounds = [count * at // stretches for at in range(stretches + 1)]
    for begin, end in pairwise(bounds):
        kept |= {max(range(begin, end), key=level), min(range(begin, end), key=level)}
    return tuple(
        (
            float(at) if times is None else times[max(at - 1, 0)],
            level(at),
            None if played.reserved is None else played.reserved[at],
        )
        for at in sorted(kept)
    )
