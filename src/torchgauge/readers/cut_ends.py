"""Cuts spans' ends so that they nest strictly, as trace viewers need in order to stack them."""

from __future__ import annotations

import numpy as np

from torchgauge.records.trace.events import Codes, Integers, Rows


def outer_first(start: Integers, duration: Integers, thread: Codes) -> Rows:
    """Return the spans in the order of threads and starts, the longer first, then as given."""
    return np.lexsort((-duration, start, thread))


def cut_ends(start: Integers, duration: Integers, thread: Codes) -> Integers:
    """Return the spans' ends in ns, so that of two on a thread one holds the other or they part.

    Of two that overlap, the one that loses less is cut: the later where it outlasts the one around
    it by rounding, the earlier where the later follows it.
    """
    order = outer_first(start, duration, thread)
    ends = (start + duration)[order].tolist()
    running: list[int] = []
    previous_code = None
    columns = zip(start[order].tolist(), thread[order].tolist(), strict=True)
    for index, (begin, thread_code) in enumerate(columns):
        if thread_code != previous_code:
            running, previous_code = [], thread_code
        while running:
            latest = running[-1]
            if begin < ends[latest]:
                overhang = ends[index] - ends[latest]
                if overhang <= 0:
                    break
                if overhang <= ends[latest] - begin:
                    ends[index] = ends[latest]
                    break
                ends[latest] = begin
            running.pop()
        running.append(index)
    cut = np.empty(len(start), np.int64)
    cut[order] = ends
    return cut
