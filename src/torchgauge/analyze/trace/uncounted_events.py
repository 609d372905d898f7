"""Spans of categories that no figure of a trace counts: what is left out is listed by name."""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.timeline.launches import KINDS
from torchgauge.readers.kineto.categories import PYTHON, is_launch
from torchgauge.records.trace.events import Events
from torchgauge.records.trace.trace import UncountedEvents

# "launch" is Proton's; "Trace" has the profiler's own marks.
_COUNTED = frozenset(
    ("cpu_op", "user_annotation", "gpu_user_annotation", PYTHON, "launch", "Trace", *KINDS)
)


def uncounted(events: Events) -> tuple[UncountedEvents, ...]:
    """Return the categories that no figure counts, most events first."""
    codes = events.category.codes + 1  # 0 is none
    counts = np.bincount(codes, minlength=len(events.category.values) + 1)
    times = np.bincount(codes, np.maximum(events.duration, 0), len(counts))
    records = [
        UncountedEvents(category=name, count=int(count), time=float(time) * 1e-9)
        for name, count, time in zip(("", *events.category.values), counts, times, strict=True)
        if count and name not in _COUNTED and not is_launch(name)
    ]
    return tuple(sorted(records, key=lambda record: -record.count))
