"""Fits a trace into a memory limit: up to which time its events are kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from torchgauge.errors import InputError
from torchgauge.readers.kineto.categories import PYTHON
from torchgauge.readers.kineto.decoding import Event
from torchgauge.readers.kineto.times import nanoseconds

# Bytes that reading and analysing need at most: by themselves, per span, per other event.
ITSELF, SPAN, OTHER = 110_000_000, 215, 60
_MAX_SAMPLES = 1 << 20  # sampled times, which tell what share of the events begins before a time


class Fitting(NamedTuple):
    """Events from `until` on are left out (ns as the file has them); `needed` bytes take all.

    `begin` and `end` are the first time and the last.
    """

    until: int
    needed: int
    begin: int
    end: int


def fitting(chunks: Iterable[list[Event]], limit: int, *, functions: bool) -> Fitting | None:
    """Return up to which time events fit into `limit` bytes; None where all of them do.

    `functions`: whether those of Python are kept. Times are sampled: every one of a small file,
    every n-th of a large one. Raises InputError `memory-limit` where nothing fits.
    """
    spans, other_events, stride, passed = 0, 0, 1, 0
    times = np.zeros(0, np.int64)
    for events in chunks:
        kept_events = [e for e in events if e.ts and e.ph != "M" and (functions or e.cat != PYTHON)]
        span_count = sum(e.ph == "X" for e in kept_events)
        spans, other_events = spans + span_count, other_events + len(kept_events) - span_count
        starts = nanoseconds([e.ts for e in kept_events])
        times = np.concatenate([times, starts[-passed % stride :: stride]])
        passed += len(starts)
        while len(times) > _MAX_SAMPLES:
            times, stride = times[::2], 2 * stride
    needed = ITSELF + SPAN * spans + OTHER * other_events
    if needed <= limit:
        return None
    share = (limit - ITSELF) / (needed - ITSELF)
    if share <= 0:
        raise InputError(
            f"No trace can be read within {limit:,} bytes.",
            id="memory-limit",
            cause=f"Reading takes about {ITSELF:,} bytes before the first event.",
            remedy="Give more memory.",
        )
    times.sort()
    until = int(times[int(share * len(times))])
    return Fitting(until, needed, int(times[0]), int(times[-1]))


def before(events: list[Event], until: int) -> list[Event]:
    """Return the events that begin before `until` (ns), and all that name something."""
    timed = [e for e in events if e.ph != "M"]
    times = nanoseconds([e.ts for e in timed]).tolist()
    early = [e for e, time in zip(timed, times, strict=True) if time < until]
    return early + [e for e in events if e.ph == "M"]
