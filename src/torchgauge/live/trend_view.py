"""What the page says about the trend of a figure: all runs of a series, and what changed lately."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import Connection

from torchgauge.errors import InputError
from torchgauge.history import fleet
from torchgauge.history.fleet import FIRST, Place, SeriesRuns
from torchgauge.live.analyses import Analyses
from torchgauge.live.history_reader import ANALYZED_RUNS, HistoryReader, analyzed_series
from torchgauge.records.trend import Trend, TrendSeries
from torchgauge.report.page import page_trend

TREND_POINTS = 600
# An answer waits so long for changes and for values of all runs, in seconds: often they are there.
PATIENCE = 0.08
# Runs that are read at once: others want to read meanwhile.
CHUNK = 5_000
HELD_FIGURES = 8


@dataclass
class _Held:
    """What was read of a figure of all runs: `runs` until `last`, and their `values`."""

    runs: int = 0
    last: Place = FIRST
    values: list[float] = field(default_factory=list)


class TrendView:
    """Answers questions about figures over time; the last ones are not read again."""

    def __init__(self, reader: HistoryReader, executor: Executor) -> None:
        self._reader = reader
        self._analyses: Analyses[list[TrendSeries]] = Analyses(executor, PATIENCE)
        self._all: Analyses[tuple[float, ...]] = Analyses(executor, PATIENCE)
        self._held: dict[object, _Held] = {}
        self._newest = functools.lru_cache(maxsize=8)(self._read_newest)

    def trend(self, series: SeriesRuns, metric: str) -> dict[str, Any]:
        """Return a figure over all runs of a series, and its newest runs with what changed.

        While values are read and changes are searched, `pending` is true, and there may be only the
        newest runs. Raises InputError `live-unknown`.
        """
        newest = self._newest(series, metric)
        if newest is None:
            raise unknown("The series has no such figure.")
        subject, state = (series.identity, metric), (series.runs, series.newest)
        values: Sequence[float] = [point.value for point in newest.points]
        has_all = series.runs <= ANALYZED_RUNS
        if not has_all:
            read, has_all = self._all.result(
                subject, state, lambda: self._read_values(series, metric)
            )
            values = read or values
        analyzed, is_current = self._analyses.result(
            subject, state, lambda: analyzed_series(self._reader, series.identity, metric)
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
            "first": max(len(values) - len(drawn.points), 0),
            "newest": [point.run for point in drawn.points],
            "pending": not (is_current and has_all),
            **(page_trend.series(Trend(store="", series=(drawn,))) or {}),
        }

    def _read_newest(self, series: SeriesRuns, metric: str) -> TrendSeries | None:
        """Return a figure of the newest runs as a series without changes; None if none has it."""

        def read(connection: Connection) -> TrendSeries | None:
            points, _ = fleet.newest_points(connection, series.identity, [metric], ANALYZED_RUNS)
            return next(iter(points), None)

        return self._reader.query(read)

    def _read_values(self, series: SeriesRuns, metric: str) -> tuple[float, ...]:
        """Return a figure of all runs of a series: what was read before, and the runs since."""
        subject = (series.identity, metric)
        held = self._held.pop(subject, _Held())
        self._read_on(held, *subject)
        if held.runs != series.runs:  # one came in between, or one was removed
            held = _Held()
            self._read_on(held, *subject)
        self._held[subject] = held
        if len(self._held) > HELD_FIGURES:
            del self._held[next(iter(self._held))]
        return tuple(held.values)

    def _read_on(self, held: _Held, identity: tuple[str, ...], metric: str) -> None:
        while True:
            figures = self._reader.query(fleet.values, identity, metric, held.last, CHUNK)
            held.runs += len(figures)
            held.values += [value for _, value in figures if value is not None]
            if figures:
                held.last = figures[-1][0]
            if len(figures) < CHUNK:
                return


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
