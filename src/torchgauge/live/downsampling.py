"""Fewer points of a long series that look the same: nothing is averaged away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def downsampled(values: Sequence[float], limit: int) -> list[int]:
    """Return the positions of at most `limit` values (4 or more): ends and extremes of stretches.

    Of each of limit ÷ 4 equal stretches the first, the smallest, the largest and the last value
    stay, so that a line through them covers the same pixels, and every spike is there.

    Source: Jugel and others (2014), "M4: a visualization-oriented time series data aggregation".
    """
    count = len(values)
    if count <= limit:
        return list(range(count))
    array = np.asarray(values, dtype=np.float64)
    bounds = np.linspace(0, count, limit // 4 + 1).astype(int)
    positions: set[int] = set()
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        stretch = array[begin:end]
        positions |= {begin, begin + int(stretch.argmin()), begin + int(stretch.argmax()), end - 1}
    return sorted(positions)
