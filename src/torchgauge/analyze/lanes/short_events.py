"""Blocks in place of the shortest events, where a recording has more than a page can hold."""

from __future__ import annotations

import numpy as np

from torchgauge.records.trace.events import Integers, Rows


def blocks(begin: Integers, end: Integers, row: Integers, most: int) -> Rows:
    """Return the number of the block that each event is in; long events have one of their own.

    The events are by row (numbered over all lanes) and begin. The time is cut into equal parts;
    neighbours in a row that begin in the same part and are shorter than a part share a block. The
    parts are as short as they can be with `most` blocks at most (to an eighth), or as one part for
    the whole time gives.
    """
    count = len(begin)
    if count <= most:
        return np.arange(count)
    new_row = np.diff(row) != 0
    last = max(int(end.max()), 1).bit_length() + 1
    low, high = 0, 8 * last  # exponents of two, in eighths
    while high - low > 1:
        middle = (low + high) // 2
        if _numbered(begin, end, new_row, middle)[-1] < most:
            high = middle
        else:
            low = middle
    return _numbered(begin, end, new_row, high)


def _numbered(begin: Integers, end: Integers, new_row: np.ndarray, eighths: int) -> Rows:
    width = max(int(2 ** (eighths / 8)), 1)
    is_long = end - begin >= width
    part = begin // width
    apart = (np.diff(part) != 0) | new_row | is_long[1:] | is_long[:-1]
    return np.cumsum(np.concatenate([[False], apart]))
