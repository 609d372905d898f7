"""How much of a trace fits into a limit of memory: up to which time its events are kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from torchgauge.errors import InputError
from torchgauge.trace.categories import PYTHON
from torchgauge.trace.decoding import Event
from torchgauge.trace.times import nanoseconds

# What reading and analysing needs at most, in bytes: of itself, for a span, for any other event.
ITSELF, SPAN, OTHER = 110_000_000, 215, 60
_MOST = 1 << 20  # times that are kept to tell which share of the events begins before which time


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
    spans, others, stride, passed = 0, 0, 1, 0
    times = np.zeros(0, np.int64)
    for events in chunks:
        kept = [e for e in events if e.ts and e.ph != "M" and (functions or e.cat != PYTHON)]
        mine = sum(e.ph == "X" for e in kept)
        spans, others = spans + mine, others + len(kept) - mine
        found = nanoseconds([e.ts for e in kept])
        times = np.concatenate([times, found[-passed % stride :: stride]])
        passed += len(found)
        while len(times) > _MOST:
            times, stride = times[::2], 2 * stride
    needed = ITSELF + SPAN * spans + OTHER * others
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
    kept = [e for e, time in zip(timed, times, strict=True) if time < until]
    return kept + [e for e in events if e.ph == "M"]
