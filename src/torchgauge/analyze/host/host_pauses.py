"""Pauses in which a device waited for the host, by the thread whose launch ended them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchgauge.analyze.timeline.time_intervals import Intervals
from torchgauge.analyze.trace.device_breakdown import HOST_WAIT, gaps
from torchgauge.analyze.trace.device_work import Activities
from torchgauge.analyze.trace.synchronisations import Waits
from torchgauge.records.trace.events import Integers

Pauses = dict[int, Intervals]  # by thread


def host_pauses(activities: Activities, thread: Integers) -> Pauses:
    """Return these pauses of the device that waits longest; `thread` launched each activity."""
    longest, pauses = -1, Pauses()
    for device in np.unique(activities.device).tolist():
        on_device = np.flatnonzero(activities.device == device)
        begin, length, cause, ended_by = gaps(activities.take(on_device))
        waits = cause == HOST_WAIT
        if (total := int(length[waits].sum())) > longest:
            begin, end = begin[waits], (begin + length)[waits]
            ended_by_thread = thread[on_device][ended_by[waits]]
            longest = total
            pauses = {
                code: Intervals(begin[ended_by_thread == code], end[ended_by_thread == code])
                for code in np.unique(ended_by_thread).tolist()
            }
    return pauses


def caused_by_waits(waits: Waits, pauses: Pauses) -> Integers:
    """Return by wait for the device, in ns, how much of the pauses it can have caused at most.

    A host that does not wait is ahead by the time of the wait, and pauses shrink until that is
    used up, the next ones first. So none is told to have cost more than it took, nor all of them
    together more than the pauses. Of several waits the latest before a pause caused it.
    """
    caused = [0] * len(waits.row)
    for thread, on_thread in pauses.items():
        indices = np.flatnonzero(waits.thread == thread)  # in order of their ends
        if not len(indices):
            continue
        waiting = iter(_timed(indices.tolist(), waits.begin[indices], waits.end[indices]))
        next_wait = next(waiting, None)
        ahead: list[tuple[int, int]] = []  # waits before the pause, and the lead left of each
        for begin, end in zip(on_thread.begin.tolist(), on_thread.end.tolist(), strict=True):
            while next_wait is not None and next_wait[2] < end:
                ahead.append((next_wait[0], next_wait[2] - next_wait[1]))
                next_wait = next(waiting, None)
            remaining = end - begin
            while remaining and ahead:
                index, lead = ahead.pop()
                used = min(lead, remaining)
                caused[index] += used
                remaining -= used
                if lead > used:
                    ahead.append((index, lead - used))
    return np.array(caused, np.int64)


def _timed(indices: list[int], begin: Integers, end: Integers) -> Iterator[tuple[int, int, int]]:
    return zip(indices, begin.tolist(), end.tolist(), strict=True)
