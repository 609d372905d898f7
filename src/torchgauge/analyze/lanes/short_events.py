"""Blocks in place of the shortest events, where a recording has more than a page can hold."""

from __future__ import annotations

import numpy as np

from torchgauge.records.trace.events import Integers, Rows

# A block is as long as the window ÷ this at most: narrower than a pixel where all of it is seen.
SHARES = 4096
_TRIALS = 12


def blocks(begin: Integers, end: Integers, row: Integers, window: int, most: int) -> Rows:
    """Return the number of the block that each event is in; long events have one of their own.

    The events are by row (numbered over all lanes) and begin. Those of a block are neighbours in
    their row. As few of the shortest as possible share blocks, so that there are `most` at most, or
    as many as the longest allowed blocks give.
    """
    count = len(begin)
    if count <= most:
        return np.arange(count)
    width = max(window // SHARES, 1)
    bucket = begin // width
    new_bucket = np.concatenate([[True], (np.diff(bucket) != 0) | (np.diff(row) != 0)])
    duration = end - begin
    low, high = 0, width  # too many blocks are left by `low`; `high` is the longest that may join
    number = _numbered(duration, new_bucket, high)
    for _ in range(_TRIALS):
        middle = (low + high) // 2
        trial = _numbered(duration, new_bucket, middle)
        if trial[-1] < most:
            high, number = middle, trial
        else:
            low = middle
    return number


def _numbered(duration: Integers, new_bucket: np.ndarray, limit: int) -> Rows:
    is_long = duration >= limit
    after_long = np.concatenate([[True], is_long[:-1]])
    return np.cumsum(new_bucket | is_long | after_long) - 1
