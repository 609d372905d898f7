"""How a time is distributed, drawn so that its tail has as much room as its median."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torchgauge.records.serving.distribution import Distribution
from torchgauge.records.serving.goal import Goal
from torchgauge.records.serving.level import Level
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.serving.request_times import request_times

PER_DECADE = 30  # points of a curve
MARKED = (2, 10, 20, 100, 1_000, 10_000)  # one in so many: p50, p90, p95, p99, …


def curve(values: npt.NDArray[np.float64]) -> list[list[float]]:
    """Return points (one in so many, nanoseconds): as many took that long or longer.

    Of `n` values, `n − r + 1` reach or exceed the one of rank `r`: the points are exact, the last
    is the longest of all. The usual percentiles are among them.
    """
    ordered = np.sort(values[np.isfinite(values)])
    count = len(ordered)
    if not count:
        return []
    steps = int(PER_DECADE * np.log10(count)) + 2
    longer = np.unique(np.rint(np.geomspace(1, count, steps)).astype(np.int64))[::-1]
    ranks = {count / number: count - number for number in longer.tolist()}
    for one_in in MARKED:
        if one_in < count:
            ranks.setdefault(one_in, int(np.ceil(count - count / one_in)) - 1)
    return [
        [float(f"{one_in:.6g}"), round(float(ordered[rank]) * 1e9)]
        for one_in, rank in sorted(ranks.items())
    ]


def percentile_points(distribution: Distribution | None) -> list[list[float | None]]:
    """Return the percentiles of a record: one in so many, nanoseconds, both ends or None."""
    points: list[list[float | None]] = []
    for percentile in distribution.percentiles if distribution is not None else ():
        if 0 <= percentile.fraction < 1:
            ends = percentile.interval
            bounds = [None, None] if ends is None else [ends.low * 1e9, ends.high * 1e9]
            one_in = float(f"{1 / (1 - percentile.fraction):.6g}")
            points.append([one_in, round(percentile.value * 1e9), *bounds])
    return points


def goal_points(goals: Sequence[Goal], metrics: Sequence[str]) -> list[list[Any]]:
    """Return the goals on percentiles of these metrics: one in so many, nanoseconds, its text."""
    return [
        [float(f"{1 / (1 - goal.fraction):.6g}"), round(goal.limit * 1e9), words.goal(goal)]
        for goal in goals
        if goal.metric in metrics and goal.fraction is not None and goal.fraction < 1
    ]


def distribution(level: Level) -> dict[str, Any] | None:
    """Return the distribution of latency, service and TTFT over the steady window's requests."""
    times = request_times(level)
    steady = times.steady
    if not steady.any():
        return None
    unanswered = int((times.in_window & ~times.is_done).sum())
    goals = [result.goal for result in level.goals]
    return {
        "series": list(_series(level, times.latency[steady], times.service[steady],
                               times.ttft[steady])),
        "goals": goal_points(goals, ("latency", "service", "ttft")),
        "count": int(steady.sum()),
        "notes": list(_notes(level, unanswered)),
    }  # fmt: skip


def _series(
    level: Level,
    latency: npt.NDArray[np.float64],
    service: npt.NDArray[np.float64],
    ttft: npt.NDArray[np.float64],
) -> Iterator[dict[str, Any]]:
    yield _entry("latency", latency, level.latency)
    if level.scenario == "server" and np.isfinite(service).any():
        yield {**_entry("from sent", service, level.service), "dashed": True}
    if level.ttft is not None:
        yield _entry("time to first token", ttft, level.ttft)


def _entry(
    label: str, values: npt.NDArray[np.float64], recorded: Distribution | None
) -> dict[str, Any]:
    return {"label": label, "points": curve(values), "percentiles": percentile_points(recorded)}


def _notes(level: Level, unanswered: int) -> Iterator[str]:
    if level.saturation is not None and level.saturation.saturated:
        yield "The backlog grew: this is the distribution of this window, of no steady state."
    if unanswered:
        were = "request was" if unanswered == 1 else "requests were"
        yield f"{unanswered:,} {were} not answered and have no latency."
    reasons = dict.fromkeys(
        percentile.reason
        for percentile in (level.latency.percentiles if level.latency is not None else ())
        if percentile.interval is None and percentile.reason
    )
    yield from map(short, reasons)
