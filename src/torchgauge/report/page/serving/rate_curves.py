"""Percentiles and requests answered by offered rate, the knee, and the table of levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Distribution, Estimate, Goal
from torchgauge.records.serving.serving import Capacity, Serving
from torchgauge.report.content.document import Column
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_shorter import short

METRICS = {
    "latency": "latency, from when a request was due",
    "service": "from when it was sent",
    "wait": "wait in the client",
    "ttft": "time to first token",
    "tpot": "time per token",
    "itl": "between tokens",
}
DRAWN = (0.5, 0.9, 0.95, 0.99)


def value(estimate: Estimate | None) -> float | None:
    """Return the value of an estimate; None is unknown."""
    return None if estimate is None else estimate.value


def percentile(distribution: Distribution | None, fraction: float) -> float | None:
    """Return a percentile of a distribution; None is unknown."""
    return None if distribution is None else value(distribution.percentile(fraction))


def low(estimate: Estimate | None) -> float | None:
    """Return the lower end of an estimate's interval; None is unknown."""
    return None if estimate is None or estimate.interval is None else estimate.interval.low


def high(estimate: Estimate | None) -> float | None:
    """Return the upper end of an estimate's interval; None is unknown."""
    return None if estimate is None or estimate.interval is None else estimate.interval.high


def p99(distribution: Distribution | None) -> Estimate | None:
    """Return the estimate of the 99th percentile; None is unknown."""
    return None if distribution is None else distribution.percentile(0.99)


def state(level: Level) -> str:
    """Return why a level's figures are not those of a steady state; empty where they are."""
    if level.client is not None and level.client.limited:
        return "client-limited"
    if level.saturation is not None and level.saturation.saturated:
        return "saturated"
    return "interrupted" if level.interrupted else ""


def _without_interval(level: Level) -> str:
    highest = p99(level.latency)
    return "" if highest is None or highest.interval is not None else short(highest.reason)


COLUMNS = (
    Column("load", "load", "text"),
    Column("verdict", "goals", "text"),
    Column("state", "state", "text", state),
    Column("offered", "offered/s", "number"),
    Column("completed", "answered/s", "number", lambda level: value(level.completed)),
    Column("goodput", "goodput/s", "number", lambda level: value(level.goodput)),
    Column("p50", "p50", "time", lambda level: percentile(level.latency, 0.5)),
    Column("p90", "p90", "time", lambda level: percentile(level.latency, 0.9)),
    Column("p99", "p99", "time", lambda level: percentile(level.latency, 0.99)),
    Column("p99_low", "95 % from", "time", lambda level: low(p99(level.latency))),
    Column("p99_high", "95 % to", "time", lambda level: high(p99(level.latency))),
    Column("controlled", "percentile of a goal, estimated", "time",
           lambda level: value(level.controlled)),
    Column("service", "p99 from sent", "time", lambda level: percentile(level.service, 0.99)),
    Column("ttft", "TTFT p95", "time", lambda level: percentile(level.ttft, 0.95)),
    Column("tpot", "TPOT p50", "time", lambda level: percentile(level.tpot, 0.5)),
    Column("itl", "ITL p99", "time", lambda level: percentile(level.itl, 0.99)),
    Column("tokens", "tokens/s", "number", lambda level: value(level.tokens)),
    Column("failed", "not answered", "share", lambda level: level.failed_share),
    Column("count", "requests", "count"),
    Column("slope", "backlog grew by/s", "number",
           lambda level: level.saturation and level.saturation.slope),
    Column("lateness", "client late p99", "time",
           lambda level: level.client and level.client.lateness_p99),
    Column("cpu", "client CPU", "time", lambda level: level.client and level.client.cpu),
    Column("reason", "why no interval", "text", _without_interval),
)  # fmt: skip


def rates(serving: Serving) -> dict[str, Any] | None:
    """Return the levels as a table, and by offered rate where at least two rates were tried."""
    if not serving.levels:
        return None
    charts = list(_charts(serving))
    return {
        "title": "Latency over rate" if charts else "Levels",
        "charts": charts,
        "throughput": _throughput(serving.levels),
        "knee": None if serving.capacity is None else knee(serving.capacity),
        "levels": page_tables.records_table(
            "levels", COLUMNS, serving.levels, load=list(map(short, serving.level_names))
        ),
        "notes": list(_notes(serving)) if charts else [],
    }


def knee(capacity: Capacity) -> dict[str, Any] | None:
    """Return the highest rate within the goals; None where none was."""
    if capacity.rate is None:
        return None
    ends = capacity.interval
    return {
        "rate": capacity.rate,
        "low": None if ends is None else ends.low,
        "high": None if ends is None else ends.high,
        "label": f"{'at least ' * (ends is None)}{rate_text(capacity.rate)}",
    }


def rate_text(rate: float) -> str:
    """Return requests per second: "104 requests/s"."""
    return units.rate(rate, "requests", 3)


def by_rate(levels: Sequence[Level]) -> list[Level]:
    """Return the levels that have an offered rate, in order of it."""
    rated = [level for level in levels if level.arrivals.rate is not None]
    return sorted(rated, key=lambda level: level.arrivals.rate or 0.0)


def _charts(serving: Serving) -> Iterator[dict[str, Any]]:
    levels = by_rate(serving.levels)
    if len({level.arrivals.rate for level in levels}) < 2:
        return
    for metric, title in METRICS.items():
        series = [
            {"label": f"p{100 * fraction:g}", "fraction": fraction, "points": points}
            for fraction in DRAWN
            if (points := list(_points(levels, metric, fraction)))
        ]
        if series:
            goals = percentile_goals(serving.goals, metric)
            controlled = list(_controlled(levels)) if metric == "latency" else []
            yield {"title": title, "series": series, "goals": goals, "controlled": controlled}


def percentile_goals(goals: Sequence[Goal], metric: str) -> list[dict[str, Any]]:
    """Return the goals on percentiles of a metric, in nanoseconds, with their texts."""
    return [
        {"value": round(goal.limit * 1e9), "label": words.goal(goal), "fraction": goal.fraction}
        for goal in goals
        if goal.metric == metric
    ]


def _points(levels: Sequence[Level], metric: str, fraction: float) -> Iterator[list[Any]]:
    """Yield (rate, nanoseconds, both ends or None, state) of each level that shows it."""
    for level in levels:
        distribution: Distribution | None = getattr(level, metric)
        percentile = None if distribution is None else distribution.percentile(fraction)
        if percentile is not None:
            yield [level.arrivals.rate, *scaled(percentile), state(level)]


def _controlled(levels: Sequence[Level]) -> Iterator[list[Any]]:
    for level in levels:
        if level.controlled is not None:
            yield [level.arrivals.rate, *scaled(level.controlled), state(level)]


def scaled(estimate: Estimate, scale: float = 1e9) -> list[Any]:
    """Return a value and both ends of its interval, times in nanoseconds; None is unknown."""
    ends = estimate.interval
    values = [estimate.value, *((ends.low, ends.high) if ends is not None else (None, None))]
    return [None if value is None else float(f"{value * scale:.6g}") for value in values]


def _throughput(levels: Sequence[Level]) -> list[list[Any]]:
    """Return (offered, answered and ends, goodput and ends, state) by offered rate."""
    rows = []
    for level in by_rate(levels):
        estimates = [
            [None] * 3 if estimate is None else scaled(estimate, 1.0)
            for estimate in (level.completed, level.goodput)
        ]
        rows.append([level.arrivals.rate, *estimates[0], *estimates[1], state(level)])
    return rows if len({row[0] for row in rows}) > 1 else []


def _notes(serving: Serving) -> Iterator[str]:
    states = {state(level) for level in serving.levels}
    if "saturated" in states:
        yield (
            "A ring is a saturated level: the backlog grew, so its percentiles describe the time "
            "that was measured, and no steady state."
        )
    if "client-limited" in states:
        yield "At a ring the client may have been too slow to be believed: the table says where."
    if any(level.controlled is not None for level in serving.levels):
        yield (
            "Estimated: the measured percentile, corrected by a simulation of the same schedule "
            "(control variate)."
        )
