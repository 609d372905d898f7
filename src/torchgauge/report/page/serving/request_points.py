"""Every request as a point by when it was due, thinned where there are many; and the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from torchgauge.analyze.serving.request_times import RequestTimes, in_window
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import FATES
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_tables import Column
from torchgauge.report.page.serving.request_times import (
    Times,
    answered,
    microseconds,
    stretches,
)
from torchgauge.report.page.serving.thinned_points import COLUMNS, thinned

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
        "goals": [
            {"value": round(result.goal.limit * 1e9), "label": words.goal(result.goal)}
            for result in level.goals
            if result.goal.metric == "latency"
        ],
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
    cells = {column.key: [row.get(column.key) for row in rows] for column in TABLE}
    return {**page_tables.table("requests", TABLE, cells), "sorted": "latency"}


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
