"""Rows of a lane: an event inside another lies below it, and no two of a row overlap."""

from __future__ import annotations

import numpy as np

from torchgauge.records.trace.events import ABSENT, Integers

MAX_ROWS = 64


def rows(start: Integers, end: Integers, tolerance: int = 0) -> Integers:
    """Return the row of each event, ABSENT for those nested deeper than MAX_ROWS.

    The events are in order of start, the longer first. An event has the first row in which all
    before it have ended; one that reaches into the next by no more than `tolerance` has ended.
    """
    row = np.full(len(start), ABSENT, np.int32)
    left = np.arange(len(start))
    for number in range(MAX_ROWS):
        if not len(left):
            break
        begin, reach = start[left], np.maximum.accumulate(end[left])
        before = np.concatenate([[np.iinfo(np.int64).min // 2], reach[:-1]])
        fits = begin >= before
        if tolerance:
            fits |= (begin >= before - tolerance) & (end[left] > before)
        row[left[fits]] = number
        left = left[~fits]
    return row
