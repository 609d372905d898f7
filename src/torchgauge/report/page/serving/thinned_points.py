"""Fewer points of many: each stands for its neighbours, and the extremes are always among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

COLUMNS, ROWS = 1_200, 300  # of the finest grid: as many as a wide screen shows
SHRINK = 0.9


class Thinned(NamedTuple):
    """The points that are drawn.

    Attributes:
        indices: Which of all points these are, in ascending order.
        counts: How many points each stands for, itself included; they add up to all.
    """

    indices: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def thinned(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], max_points: int) -> Thinned:
    """Return all points, or where there are more than `max_points` one for each place of a grid.

    The grid has equal steps of `x` and of the logarithm of `y`. Of the points at one place the
    highest is drawn, and in each column of the grid the lowest too, so that neither a slow point
    nor a fast one is lost.

    Args:
        x: Finite.
        y: Above 0.
        max_points: As many are drawn at most, but at least one for each column.
    """
    if len(x) <= max_points:
        return Thinned(np.arange(len(x)), np.ones(len(x), np.int64))
    height = np.log(np.maximum(y, 1e-9))
    columns, rows = float(min(COLUMNS, max_points / 4)), float(ROWS)
    while True:
        column, row = _steps(x, int(columns)), _steps(height, int(rows))
        place = column * int(rows) + row
        count = len(np.unique(place)) + len(np.unique(column))
        if count <= max_points or rows < 2:
            return _chosen(place, column, y)
        factor = SHRINK * (max_points / count) ** 0.5
        columns, rows = max(columns * factor, 1.0), max(rows * factor, 1.0)


def _steps(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    low, high = values.min(), values.max()
    if high <= low or count < 2:
        return np.zeros(len(values), np.int64)
    steps: npt.NDArray[np.int64] = ((values - low) / (high - low) * count).astype(np.int64)
    return np.minimum(steps, count - 1)


def _chosen(
    place: npt.NDArray[np.int64], column: npt.NDArray[np.int64], y: npt.NDArray[np.float64]
) -> Thinned:
    order = np.lexsort((y, place))
    ends = np.flatnonzero(np.append(np.diff(place[order]) > 0, True))
    highest, count = order[ends], np.diff(ends, prepend=-1)
    by_column = np.lexsort((y, column))
    begins = np.flatnonzero(np.append(True, np.diff(column[by_column]) > 0))
    lowest = np.setdiff1d(by_column[begins], highest)
    # A lowest point stands for itself alone, and no longer among those of its place.
    counts = dict(zip(highest.tolist(), count.tolist(), strict=True))
    highest_at = dict(zip(place[highest].tolist(), highest.tolist(), strict=True))
    for index in lowest.tolist():
        counts[highest_at[int(place[index])]] -= 1
        counts[index] = 1
    chosen = np.array(sorted(counts), np.int64)
    return Thinned(chosen, np.array([counts[index] for index in chosen.tolist()], np.int64))
