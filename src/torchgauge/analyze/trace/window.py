"""The window of a recording: the time from the first to the last of what it holds."""

from __future__ import annotations

import numpy as np

from torchgauge.records.trace.events import Events


def window(events: Events) -> tuple[int, int]:
    """Return begin and end, in ns, of all events except the profiler's own marks."""
    rows = np.flatnonzero(events.category.where(lambda name: name != "Trace"))
    if not len(rows):
        return 0, 0
    start = events.start[rows]
    return int(start.min()), int((start + np.maximum(events.duration[rows], 0)).max())
