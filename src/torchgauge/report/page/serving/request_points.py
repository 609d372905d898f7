"""Every request as a point by when it was due, thinned where there are many; and the slowest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import FATES
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_tables import Column
from torchgauge.report.page.serving.request_times import (
    RequestTimes,
    Times,
    microseconds,
    request_times,
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
    """Return how many points each of so many levels may have."""
    return max(MIN_OF_LEVEL, min(MAX_OF_LEVEL, MAX_POINTS // max(levels, 1)))


def points(x: Times, y: Times, max_points: int) -> dict[str, Any]:
    """Return points in microseconds, and how many requests or gaps each stands for."""
    shown = thinned(x, y, max_points)
    is_thinned = len(shown.index) < len(x)
    return {
        "x": microseconds(x[shown.index]),
        "y": microseconds(y[shown.index]),
        "count": shown.count.tolist() if is_thinned else [],
    }


def requests(level: Level, max_points: int) -> dict[str, Any] | None:
    """Return the requests of a level as points, and a table of the slowest and the unanswered."""
    times = request_times(level)
    if not len(times.scheduled):
        return None
    steady, other = times.steady, times.is_done & ~times.in_window
    answered = int(times.is_done.sum())
    share = max(int(max_points * int(other.sum()) / max(answered, 1)), min(max_points // 10, 500))
    return {
        "series": [
            {"label": label, **points(times.scheduled[flags], times.latency[flags], most)}
            for label, flags, most in (
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
    for position in np.flatnonzero(~times.is_done).tolist():
        index = int(times.index[position])
        fate = fates[index] if index < len(fates) else "unfinished"
        by_fate.setdefault(fate, []).append(float(times.scheduled[position]))
    end = max(float(times.scheduled[-1]), 1e-9)
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
    latency = np.where(times.is_done, times.latency, -1.0)
    slowest = np.argsort(-latency, kind="stable")[: min(SLOWEST, int(times.is_done.sum()))]
    unanswered = np.flatnonzero(~times.is_done)[:UNANSWERED]
    positions: npt.NDArray[np.int64] = np.concatenate([slowest, unanswered])
    rows = [_row(level, times, position) for position in positions.tolist()]
    cells = {column.key: [row.get(column.key) for row in rows] for column in TABLE}
    return {**page_tables.table("requests", TABLE, cells), "sorted": "latency"}


def _row(level: Level, times: RequestTimes, position: int) -> dict[str, Any]:
    requests = level.requests
    index = int(times.index[position])
    status = _at(requests.status, index)
    item = _at(requests.item, index)
    return {
        "number": f"{index + 1:,}",
        "due": _known(times.scheduled[position]),
        "wait": _known(times.sent[position] - times.scheduled[position]),
        "latency": _known(times.latency[position]),
        "service": _known(times.service[position]),
        "ttft": _known(times.ttft[position]) if level.ttft is not None else None,
        "fate": words.FATES.get(_at(requests.fate, index), ""),
        "status": "" if status is None else str(status),
        "item": "" if item is None else f"{item + 1}",
        "tokens_in": _at(requests.tokens_in, index),
        "tokens_out": _at(requests.tokens_out, index),
        "batch": _at(requests.batch, index),
        "computed": _at(requests.service, index),
    }


def _at(column: Sequence[Any], index: int) -> Any:
    return column[index] if index < len(column) else None


def _known(seconds: float) -> float | None:
    return float(seconds) if np.isfinite(seconds) else None
