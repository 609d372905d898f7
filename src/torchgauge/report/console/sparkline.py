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
    medians = [statistics.median(values[a:b]) for a, b in itertools.pairwise(ends)]
    low, high = min(medians, default=0.0), max(medians, default=0.0)
    if low == high:
        return BLOCKS[3] * columns
    return "".join(BLOCKS[round((value - low) / (high - low) * 7)] for value in medians)


def stepped(points: Sequence[Sequence[float | None]], column: int, width: int) -> str:
    """Draw a column of points: the first is the time, and each holds until the next."""
    end = points[-1][0] or 1.0
    columns: list[float] = [0.0] * width
    for point, next_point in itertools.pairwise((*points, points[-1])):
        begin, last = (_column((endpoint[0] or 0) / end, width) for endpoint in (point, next_point))
        for index in range(begin, last + 1):
            columns[index] = max(columns[index], point[column] or 0)
    return sparkline(columns, width)


def _column(share: float, width: int) -> int:
    """Return the column of a share of the width; a clock that ran back gives a share below 0."""
    return min(int(min(max(share, 0.0), 1.0) * width), width - 1)
