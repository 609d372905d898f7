"""How far the host was ahead of each stream: what was launched and had not begun."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.pieces import Pieces
from torchgauge.model.events import ABSENT
from torchgauge.model.trace import Queue


def queues(pieces: Pieces) -> tuple[Queue, ...]:
    """Return the queue of each stream that has work whose launch was recorded.

    The two clocks differ by some microseconds: what seems to begin before its launch began with it.
    """
    return tuple(_each(pieces.take(pieces.launch != ABSENT)))


def _each(pieces: Pieces) -> Iterator[Queue]:
    streams = (
        (device, *each)
        for device, here in pieces.by(pieces.device)
        for each in here.by(here.stream)
    )
    for device, stream, mine in streams:
        begin = np.maximum(mine.begin, mine.launch)
        delay = begin - mine.launch
        time = np.concatenate([mine.launch, begin])
        change = np.repeat([1, -1], len(mine))
        order = np.lexsort((-change, time))  # launched before it begins
        time, change = time[order], change[order]
        length = np.cumsum(change)
        whole = int(time[-1] - time[0])
        waiting = float((length[:-1] * np.diff(time)).sum())
        yield Queue(
            device=None if device == ABSENT else device,
            stream=None if stream == ABSENT else stream,
            mean=waiting / whole if whole else 0.0,
            most=int(length.max()),
            empty=float((length[change < 0] == 0).mean()),
            delay_median=float(np.median(delay)) * 1e-9,
            delay_p99=float(np.quantile(delay, 0.99)) * 1e-9,
        )
