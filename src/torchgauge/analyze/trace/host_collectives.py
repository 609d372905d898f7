"""Collectives as the host names them: `nccl:all_to_all` around what it launches.

Recordings of before torch 2.1 have no arguments on communication kernels, and several kernels serve
more than one collective: an all-to-all runs `ncclKernel_SendRecv`.
"""

from __future__ import annotations

import numpy as np

from torchgauge.analyze.timeline.launches import Launched
from torchgauge.records.trace.events import ABSENT, Coded, Codes, Events

PREFIX = "nccl:"


def host_collectives(events: Events, work: Launched) -> Coded[str]:
    """Return the `nccl:` span around each piece's launch; absent where there is none."""
    codes: Codes = np.full(len(work.row), ABSENT, np.int32)
    (rows,) = np.nonzero(events.name.where(lambda name: name.startswith(PREFIX)))
    calls = np.where(work.launched, events.thread.codes[work.call], ABSENT)
    for thread in np.unique(events.thread.codes[rows]).tolist():
        spans = rows[events.thread.codes[rows] == thread]
        spans = spans[np.argsort(events.start[spans], kind="stable")]
        (launches,) = np.nonzero(calls == thread)
        before = np.searchsorted(events.start[spans], work.time[launches], side="right") - 1
        around = spans[before]
        inside = (before >= 0) & (
            work.time[launches] <= events.start[around] + events.duration[around]
        )
        codes[launches[inside]] = events.name.codes[around[inside]]
    return Coded(codes, events.name.values)
