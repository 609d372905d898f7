"""How latency and gaps between tokens are distributed, with room for the tail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.request_times import RequestTimes, in_window
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Distribution, Goal
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.serving.request_times import Flags, answered, points, stretches

PER_DECADE = 30  # points of a curve
MARKED = (2, 10, 20, 100, 1_000, 10_000)  # one in n: p50, p90, p95, p99, …
COUNTED_BY = {
    "usage": "Tokens are those of the server's own count (usage).",
    "chunks": "The server does not count tokens, or fewer than came: a chunk counts as one.",
}


def curve(values: npt.NDArray[np.float64]) -> list[list[float]]:
    """Return points (n, nanoseconds): one in n took that long or longer.

    Of `n` values, `n − r + 1` reach or exceed the one of rank `r`: the points are exact, the last
    is the longest of all. The usual percentiles are among them. Infinite values, of requests
    without an answer, are longer than all others: the curve ends before them.
    """
    ordered = np.sort(values[~np.isnan(values)])
    count, finite = len(ordered), int(np.isfinite(ordered).sum())
    if not finite:
        return []
    steps = int(PER_DECADE * np.log10(count)) + 2
    longer = np.unique(np.rint(np.geomspace(count - finite + 1, count, steps)).astype(np.int64))
    ranks = {count / number: count - number for number in longer.tolist()}
    for one_in in MARKED:
        rank = int(np.ceil(count - count / one_in)) - 1
        if one_in < count and rank < finite:
            ranks.setdefault(one_in, rank)
    return [
        [float(f"{one_in:.6g}"), round(float(ordered[rank]) * 1e9)]
        for one_in, rank in sorted(ranks.items())
    ]


def percentile_points(distribution: Distribution | None) -> list[list[float | None]]:
    """Return the percentiles of a record: one in n, nanoseconds, both ends or None."""
    entries: list[list[float | None]] = []
    for percentile in distribution.percentiles if distribution is not None else ():
        if 0 <= percentile.fraction < 1:
            ends = percentile.interval
            bounds = [None, None] if ends is None else [ends.low * 1e9, ends.high * 1e9]
            one_in = float(f"{1 / (1 - percentile.fraction):.6g}")
            entries.append([one_in, round(percentile.value * 1e9), *bounds])
    return entries


def goal_points(goals: Sequence[Goal], metrics: Sequence[str]) -> list[list[Any]]:
    """Return the goals on percentiles of these metrics: one in n, nanoseconds, its text."""
    return [
        [float(f"{1 / (1 - goal.fraction):.6g}"), round(goal.limit * 1e9), words.goal(goal)]
        for goal in goals
        if goal.metric in metrics and goal.fraction is not None and goal.fraction < 1
    ]


def distribution(level: Level) -> dict[str, Any] | None:
    """Return the distribution of latency, service and TTFT over the steady window's requests."""
    times = RequestTimes(level.requests)
    steady = in_window(times, level.window)
    unanswered = int((steady & ~answered(times)).sum())
    if unanswered == steady.sum():
        return None
    goals = [result.goal for result in level.goals]
    return {
        "series": list(_series(level, times, steady)),
        "goals": goal_points(goals, ("latency", "service", "ttft")),
        "count": int(steady.sum()),
        "notes": list(_notes(level, unanswered)),
    }


def _series(level: Level, times: RequestTimes, steady: Flags) -> Iterator[dict[str, Any]]:
    yield _entry("latency", times.latency[steady], level.latency)
    if level.scenario == "server" and np.isfinite(times.service[steady]).any():
        yield {**_entry("from sent", times.service[steady], level.service), "dashed": True}
    if level.ttft is not None:
        yield _entry("time to first token", times.ttft[steady], level.ttft)


def _entry(
    label: str, values: npt.NDArray[np.float64], recorded: Distribution | None
) -> dict[str, Any]:
    return {"label": label, "points": curve(values), "percentiles": percentile_points(recorded)}


def _notes(level: Level, unanswered: int) -> Iterator[str]:
    if level.saturation is not None and level.saturation.saturated:
        yield "The backlog grew: this is the distribution of this window, of no steady state."
    if unanswered:
        were = "request was" if unanswered == 1 else "requests were"
        yield f"{unanswered:,} {were} not answered: longer than all others, beyond the curve."
    reasons = dict.fromkeys(
        percentile.reason
        for percentile in (level.latency.percentiles if level.latency is not None else ())
        if percentile.interval is None and percentile.reason
    )
    yield from map(short, reasons)


def between_tokens(level: Level, max_points: int) -> dict[str, Any] | None:
    """Return the gaps between contents and the time per token; None without streams."""
    times = RequestTimes(level.requests)
    if not len(times.gaps) or len(times.gap_owners) != len(times.gaps):
        return None
    steady = in_window(times, level.window)
    moments = times.gap_ends
    drawn = np.flatnonzero(steady[times.gap_owners] & np.isfinite(moments))
    if not len(drawn):
        return None
    several = level.content_tokens
    between = "between tokens (ITL)" if several is None else "between contents (ITL)"
    series = [(between, times.times_of("itl", steady), level.itl)]
    if level.tpot is not None:
        series.append(("time per token (TPOT)", times.tpot[steady], level.tpot))
    return {
        "series": [
            {"label": label, "points": curve(values), "percentiles": percentile_points(recorded)}
            for label, values, recorded in series
        ],
        "goals": goal_points([result.goal for result in level.goals], ("itl", "tpot")),
        "gaps": {"label": "gap", **points(moments[drawn], times.gaps[drawn], max_points)},
        "total": len(drawn),
        "stretches": stretches(level),
        "notes": list(
            filter(None, [COUNTED_BY.get(level.tokens_by), *words.several_tokens([level])])
        ),
    }
