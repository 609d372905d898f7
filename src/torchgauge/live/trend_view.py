"""What the page says about the trend of a figure: all runs of a series, and what changed lately."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from sqlalchemy import Connection

from torchgauge.errors import InputError
from torchgauge.history import fleet
from torchgauge.history.fleet import SeriesRuns
from torchgauge.live.analyses import Analyses
from torchgauge.live.history_reader import HistoryReader
from torchgauge.live.judgements import ANALYZED_RUNS, analyzed_series
from torchgauge.records.trend import Trend, TrendSeries
from torchgauge.report.page import page_trend

TREND_POINTS = 600
# An answer waits so long for the changes, in seconds: drawing it twice takes longer.
PATIENCE = 0.4


class TrendView:
    """Answers questions about figures over time; the last ones are not read again."""

    def __init__(self, reader: HistoryReader, executor: Executor) -> None:
        self._reader = reader
        self._analyses: Analyses[list[TrendSeries]] = Analyses(executor, PATIENCE)
        self._values = functools.lru_cache(maxsize=8)(self._read_values)

    def trend(self, series: SeriesRuns, metric: str) -> dict[str, Any]:
        """Return a figure over all runs of a series, and its newest runs with what changed.

        While changes are searched, `pending` is true. Raises InputError `live-unknown`.
        """
        values, newest = self._values(series, metric)
        if newest is None:
            raise unknown("The series has no such figure.")
        analyzed, is_current = self._analyses.result(
            (series.identity, metric),
            (series.runs, series.newest),
            lambda: analyzed_series(self._reader, series.identity, metric),
        )
        unit, factor = page_trend.PAGE_UNITS.get(newest.unit, ("count", 1.0))
        positions = downsampled(values, TREND_POINTS)
        drawn = analyzed[0] if analyzed and is_current else newest
        return {
            "metric": metric,
            "runs": len(values),
            "unit": unit,
            "at": [position + 1 for position in positions],
            "values": [float(f"{values[position] * factor:.7g}") for position in positions],
            "first": len(values) - len(drawn.points),
            "newest": [point.run for point in drawn.points],
            "pending": not is_current,
            **(page_trend.series(Trend(store="", series=(drawn,))) or {}),
        }

    def _read_values(
        self, series: SeriesRuns, metric: str
    ) -> tuple[list[float], TrendSeries | None]:
        """Return a figure of all runs, and of the newest runs as a series without changes."""

        def read(connection: Connection) -> tuple[list[float], TrendSeries | None]:
            points, _ = fleet.newest_points(connection, series.identity, [metric], ANALYZED_RUNS)
            return fleet.values(connection, series.identity, metric), next(iter(points), None)

        return self._reader.query(read)


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


def unknown(message: str) -> InputError:
    """Return the error for what the history does not have."""
    return InputError(
        message,
        id="live-unknown",
        cause="It may have been removed since the page was made.",
        remedy="Go back to the list.",
    )
