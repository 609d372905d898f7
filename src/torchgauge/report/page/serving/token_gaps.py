"""Times between tokens: how they are distributed, and each gap by when it ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.level import Level
from torchgauge.report.page.serving.request_points import points
from torchgauge.report.page.serving.request_times import in_window, stretches
from torchgauge.report.page.serving.tail_curves import curve, goal_points, percentile_points

COUNTED_BY = {
    "usage": "Tokens are those of the server's own count (usage).",
    "tokenizer": "Tokens were counted by a tokenizer of the client.",
    "chunks": "The server does not say how many tokens there were: a chunk counts as one.",
}


def between_tokens(level: Level, max_points: int) -> dict[str, Any] | None:
    """Return the gaps between contents and the time per token; None without streams."""
    times = RequestTimes(level.requests)
    if not len(times.gaps) or len(times.gap_owners) != len(times.gaps):
        return None
    steady = in_window(level, times)
    moments = times.gap_ends
    shown = np.flatnonzero(steady[times.gap_owners] & np.isfinite(moments))
    if not len(shown):
        return None
    series = [("between tokens (ITL)", times.gaps[shown], level.itl)]
    if level.tpot is not None:
        series.append(("time per token (TPOT)", times.tpot[steady], level.tpot))
    return {
        "series": [
            {"label": label, "points": curve(values), "percentiles": percentile_points(recorded)}
            for label, values, recorded in series
        ],
        "goals": goal_points([result.goal for result in level.goals], ("itl", "tpot")),
        "gaps": {"label": "gap", **points(moments[shown], times.gaps[shown], max_points)},
        "total": len(shown),
        "stretches": stretches(level),
        "notes": [COUNTED_BY[level.tokens_by]] if level.tokens_by in COUNTED_BY else [],
    }
