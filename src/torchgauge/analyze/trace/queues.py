"""Launch queue of each stream: work that was launched and had not begun."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.trace.device_work import Activities
from torchgauge.records.trace.events import ABSENT
from torchgauge.records.trace.trace import Queue


def queues(activities: Activities) -> tuple[Queue, ...]:
    """Return the queue of each stream that has work whose launch was recorded.

    The two clocks differ by some microseconds: what seems to begin before its launch began with it.
    """
    return tuple(_stream_queues(activities.take(activities.launch != ABSENT)))


def _stream_queues(activities: Activities) -> Iterator[Queue]:
    streams = (
        (device, *stream_activities)
        for device, on_device in activities.by(activities.device)
        for stream_activities in on_device.by(on_device.stream)
    )
    for device, stream, on_stream in streams:
        begin = np.maximum(on_stream.begin, on_stream.launch)
        delay = begin - on_stream.launch
        time = np.concatenate([on_stream.launch, begin])
        change = np.repeat([1, -1], len(on_stream))
        order = np.lexsort((-change, time))  # launched before it begins
        time, change = time[order], change[order]
        length = np.cumsum(change)
        duration = int(time[-1] - time[0])
        waiting = float((length[:-1] * np.diff(time)).sum())
        yield Queue(
            device=None if device == ABSENT else device,
            stream=None if stream == ABSENT else stream,
            mean=waiting / duration if duration else 0.0,
            max_length=int(length.max()),
            empty=float((length[change < 0] == 0).mean()),
            delay_median=float(np.median(delay)) * 1e-9,
            delay_p99=float(np.quantile(delay, 0.99)) * 1e-9,
        )
