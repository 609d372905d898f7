"""The times of a level's requests as a page draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.request_times import RequestTimes, in_window
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import FATES, Goal
from torchgauge.report.content.document import Column
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page import page_tables

Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def answered(times: RequestTimes) -> Flags:
    """Return which requests have a latency: they were answered as they should be."""
    return np.isfinite(times.latency)


def microseconds(seconds: Times) -> list[int]:
    """Return whole microseconds, the unit of the page's columns of requests."""
    rounded: list[int] = np.rint(np.maximum(seconds, 0.0) * 1e6).astype(np.int64).tolist()
    return rounded


def nanoseconds(seconds: Sequence[float] | Times) -> list[int | None]:
    """Return whole nanoseconds; None where it is unknown."""
    return [round(float(value) * 1e9) if np.isfinite(value) else None for value in seconds]


def latency_goals(goals: Iterable[Goal]) -> list[dict[str, Any]]:
    """Return the goals on latency, in nanoseconds, with their texts."""
    return [
        {"value": round(goal.limit * 1e9), "label": words.goal(goal)}
        for goal in goals
        if goal.metric == "latency"
    ]


def stretches(level: Level) -> list[dict[str, Any]]:
    """Return the times that are in no figure, in nanoseconds: warm-up, and what came after."""
    begin, end = (round(second * 1e9) for second in level.window)
    last = round(max(level.duration, max(level.requests.scheduled, default=0.0)) * 1e9)
    parts = [(0, begin, "warm-up"), (end, last, "after the window")]
    return [
        {"from": first, "to": final, "label": label}
        for first, final, label in parts
        if final > first
    ]


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


MAX_POINTS = 60_000  # of a page
MAX_OF_LEVEL, MIN_OF_LEVEL = 20_000, 2_000
SLOWEST = 100  # rows of the table
UNANSWERED = 100
TABLE = (
    Column("number", "request", "text"),
    Column("latency", "latency", "time"),
    Column("wait", "wait", "time"),
    Column("service", "from sent", "time"),
    Column("ttft", "TTFT", "time"),
    Column("due", "due at", "time"),
    Column("fate", "fate", "text"),
    Column("status", "status", "text"),
    Column("item", "body", "text"),
    Column("tokens_in", "tokens in", "count"),
    Column("tokens_out", "tokens out", "count"),
    Column("batch", "batch", "count"),
    Column("computed", "server computed", "time"),
)


def points_of_level(levels: int) -> int:
    """Return how many points a level may have, by the number of levels."""
    return max(MIN_OF_LEVEL, min(MAX_OF_LEVEL, MAX_POINTS // max(levels, 1)))


def points(x: Times, y: Times, max_points: int) -> dict[str, Any]:
    """Return points in microseconds, and how many requests or gaps each stands for."""
    drawn = thinned(x, y, max_points)
    is_thinned = len(drawn.indices) < len(x)
    return {
        "x": microseconds(x[drawn.indices]),
        "y": microseconds(y[drawn.indices]),
        "count": drawn.counts.tolist() if is_thinned else [],
    }


def requests(level: Level, max_points: int) -> dict[str, Any] | None:
    """Return the requests of a level as points, and a table of the slowest and the unanswered."""
    times = RequestTimes(level.requests)
    if not len(times.scheduled):
        return None
    is_done, inside = answered(times), in_window(times, level.window)
    steady, other = is_done & inside, is_done & ~inside
    share = int(max_points * other.sum() / max(is_done.sum(), 1))
    share = max(share, min(max_points // 10, 500))
    return {
        "series": [
            {"label": label, **points(times.scheduled[flags], times.latency[flags], max_drawn)}
            for label, flags, max_drawn in (
                ("in the steady window", steady, max_points),
                ("before or after it, in no figure", other, share),
            )
            if flags.any()
        ],
        "unanswered": list(_unanswered(level, times)),
        "total": len(times.scheduled),
        "stretches": stretches(level),
        "goals": latency_goals(result.goal for result in level.goals),
        "table": _table(level, times),
    }


def _unanswered(level: Level, times: RequestTimes) -> Iterator[dict[str, Any]]:
    """Yield the times at which requests of each fate were due, one for each column of a screen."""
    by_fate: dict[str, list[float]] = {}
    fates = level.requests.fate
    for index in np.flatnonzero(~answered(times)).tolist():
        by_fate.setdefault(fates[index], []).append(float(times.scheduled[index]))
    end = max(float(times.scheduled.max()), 1e-9)
    for fate in FATES:
        due = np.array(by_fate.get(fate, []))
        if len(due):
            column = np.minimum((due / end * COLUMNS).astype(np.int64), COLUMNS - 1)
            _, first, count = np.unique(column, return_index=True, return_counts=True)
            yield {
                "fate": words.FATES[fate],
                "x": microseconds(due[first]),
                "count": count.tolist(),
            }


def _table(level: Level, times: RequestTimes) -> dict[str, Any]:
    """Return the slowest of the answered requests, and the first of the unanswered ones."""
    is_done = answered(times)
    latency = np.where(is_done, times.latency, -1.0)
    slowest = np.argsort(-latency, kind="stable")[: min(SLOWEST, int(is_done.sum()))]
    unanswered = np.flatnonzero(~is_done)[:UNANSWERED]
    rows = [_row(level, times, index) for index in [*slowest.tolist(), *unanswered.tolist()]]
    return {**page_tables.records_table("requests", TABLE, rows), "sorted": "latency"}


def _row(level: Level, times: RequestTimes, index: int) -> dict[str, Any]:
    requests = level.requests
    status = _entry(requests.status, index)
    item = _entry(requests.item, index)
    return {
        "number": f"{index + 1:,}",
        "due": _finite(times.scheduled[index]),
        "wait": _finite(times.wait[index]),
        "latency": _finite(times.latency[index]),
        "service": _finite(times.service[index]),
        "ttft": _finite(times.ttft[index]) if level.ttft is not None else None,
        "fate": words.FATES.get(_entry(requests.fate, index), ""),
        "status": "" if status is None else str(status),
        "item": "" if item is None else f"{item + 1}",
        "tokens_in": _entry(requests.tokens_in, index),
        "tokens_out": _entry(requests.tokens_out, index),
        "batch": _entry(requests.batch, index),
        "computed": _entry(requests.service, index),
    }


def _entry(column: Sequence[Any], index: int) -> Any:
    return column[index] if index < len(column) else None


def _finite(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None
