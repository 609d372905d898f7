"""Times between tokens: how they are distributed, and each gap by when it ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.records.serving.level import Level
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.serving.request_points import points
from torchgauge.report.page.serving.request_times import (
    Flags,
    RequestTimes,
    Times,
    request_times,
    stretches,
)
from torchgauge.report.page.serving.tail_curves import curve, goal_points, percentile_points

COUNTED_BY = {
    "usage": "Tokens are those of the server's own count (usage).",
    "tokenizer": "Tokens were counted by a tokenizer of the client.",
    "chunks": "The server does not say how many tokens there were: a chunk counts as one.",
}


def between_tokens(level: Level, max_points: int) -> dict[str, Any] | None:
    """Return the gaps between contents and the time per token; None without streams."""
    requests = level.requests
    if not requests.gaps or len(requests.chunks) != len(requests):
        return None
    times = request_times(level)
    gaps = np.array(requests.gaps, dtype=np.float64)
    owner = _owners(requests.chunks, len(gaps))
    if owner is None:
        return None
    flags = np.empty(len(times.index), bool)
    flags[times.index] = times.steady  # in the order of the record
    steady = flags[owner]
    moments = _moments(times, owner, gaps)
    shown = np.flatnonzero(steady & np.isfinite(moments))
    shown = shown[np.argsort(moments[shown], kind="stable")]
    if not len(shown):
        return None
    return {
        "series": [
            {"label": "between tokens (ITL)", "points": curve(gaps[steady]),
             "percentiles": percentile_points(level.itl)},
            *([{"label": "time per token (TPOT)", "points": curve(_per_token(level, times, flags)),
                "percentiles": percentile_points(level.tpot)}] if level.tpot else []),
        ],
        "goals": goal_points([r.goal for r in level.goals], ("itl", "tpot")),
        "gaps": {"label": "gap", **points(moments[shown], gaps[shown], max_points)},
        "total": len(shown),
        "stretches": stretches(level),
        "notes": [short(COUNTED_BY.get(level.tokens_by, ""))],
    }  # fmt: skip


def _owners(chunks: tuple[int, ...], gaps: int) -> Times | None:
    """Return the request of each gap; None where the columns do not fit."""
    counts = np.maximum(np.array(chunks, np.int64) - 1, 0)
    owners = np.repeat(np.arange(len(chunks)), counts)
    return owners if len(owners) == gaps else None


def _moments(times: RequestTimes, owner: Times, gaps: Times) -> Times:
    """Return when each gap ended: that long after the first content of its request."""
    first = np.empty(len(times.index))
    first[times.index] = times.first
    total = np.cumsum(gaps)
    begins = np.flatnonzero(np.append(True, np.diff(owner) > 0))
    before = np.repeat(total[begins] - gaps[begins], np.diff(np.append(begins, len(owner))))
    moments: Times = first[owner] + total - before
    return moments


def _per_token(level: Level, times: RequestTimes, steady: Flags) -> Times:
    """Return (last − first) ÷ (tokens − 1) of each request in the window."""
    requests = level.requests
    column = requests.tokens_out if len(requests.tokens_out) == len(requests) else requests.chunks
    tokens = np.array(column, dtype=np.float64)
    seconds = np.empty(len(times.index))
    seconds[times.index] = times.last - times.first
    shown = steady & (tokens > 1)
    per_token: Times = seconds[shown] / (tokens[shown] - 1)
    return per_token
