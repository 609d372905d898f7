"""A series of numbers drawn in one line."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the values between their lowest and highest, in `width` columns at most.

    Where there are more values than columns, a column is the median of its share.
    """
    columns = min(width, len(values))
    ends = [len(values) * column // columns for column in range(columns + 1)] if columns else []
    shown = [statistics.median(values[a:b]) for a, b in itertools.pairwise(ends)]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    if low == high:
        return BLOCKS[3] * columns
    return "".join(BLOCKS[round((value - low) / (high - low) * 7)] for value in shown)
