"""Percentiles and requests answered by offered rate, the knee, and the table of levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Distribution, Estimate
from torchgauge.records.serving.serving import Capacity, Serving
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.page import page_tables
from torchgauge.report.page.page_shorter import short
from torchgauge.report.page.page_tables import Column

METRICS = {
    "latency": "latency, from when a request was due",
    "service": "from when it was sent",
    "wait": "wait in the client",
    "ttft": "time to first token",
    "tpot": "time per token",
    "itl": "between tokens",
}
DRAWN = (0.5, 0.9, 0.95, 0.99)
COLUMNS = (
    Column("load", "load", "text"),
    Column("verdict", "goals", "text"),
    Column("state", "state", "text"),
    Column("offered", "offered/s", "number"),
    Column("completed", "answered/s", "number"),
    Column("goodput", "goodput/s", "number"),
    Column("p50", "p50", "time"),
    Column("p90", "p90", "time"),
    Column("p99", "p99", "time"),
    Column("p99_low", "95 % from", "time"),
    Column("p99_high", "95 % to", "time"),
    Column("controlled", "percentile of a goal, estimated", "time"),
    Column("service", "p99 from sent", "time"),
    Column("ttft", "TTFT p95", "time"),
    Column("tpot", "TPOT p50", "time"),
    Column("itl", "ITL p99", "time"),
    Column("tokens", "tokens/s", "number"),
    Column("failed", "not answered", "share"),
    Column("count", "requests", "count"),
    Column("slope", "backlog grew by/s", "number"),
    Column("lateness", "client late p99", "time"),
    Column("cpu", "client CPU", "time"),
    Column("reason", "why no interval", "text"),
)


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
        "levels": _table(serving),
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
            goals = [
                {"value": round(goal.limit * 1e9), "label": words.goal(goal),
                 "fraction": goal.fraction}
                for goal in serving.goals if goal.metric == metric
            ]  # fmt: skip
            controlled = list(_controlled(levels)) if metric == "latency" else []
            yield {"title": title, "series": series, "goals": goals, "controlled": controlled}


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


def state(level: Level) -> str:
    """Return why a level's figures are not those of a steady state; empty where they are."""
    if level.client is not None and level.client.limited:
        return "client-limited"
    if level.saturation is not None and level.saturation.saturated:
        return "saturated"
    return "interrupted" if level.interrupted else ""


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


def _table(serving: Serving) -> dict[str, Any]:
    rows = [
        _row(name, level) for name, level in zip(serving.level_names, serving.levels, strict=True)
    ]
    cells = {column.key: [row.get(column.key) for row in rows] for column in COLUMNS}
    return page_tables.table("levels", COLUMNS, cells)


def _row(name: str, level: Level) -> dict[str, Any]:
    row: dict[str, Any] = {
        "load": short(name),
        "verdict": level.verdict or "",
        "state": state(level),
        "offered": level.offered,
        "completed": _value(level.completed),
        "goodput": _value(level.goodput),
        "tokens": _value(level.tokens),
        "count": level.count,
        "failed": level.failed_share,
        "controlled": _value(level.controlled),
        "service": _percentile(level.service, 0.99),
        "ttft": _percentile(level.ttft, 0.95),
        "tpot": _percentile(level.tpot, 0.5),
        "itl": _percentile(level.itl, 0.99),
    }
    for key, fraction in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        row[key] = _percentile(level.latency, fraction)
    highest = None if level.latency is None else level.latency.percentile(0.99)
    if highest is not None and highest.interval is not None:
        row |= {"p99_low": highest.interval.low, "p99_high": highest.interval.high}
    elif highest is not None:
        row["reason"] = short(highest.reason)
    if level.saturation is not None:
        row["slope"] = level.saturation.slope
    if level.client is not None:
        row |= {"lateness": level.client.lateness_p99, "cpu": level.client.cpu}
    return row


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _percentile(distribution: Distribution | None, fraction: float) -> float | None:
    return None if distribution is None else _value(distribution.percentile(fraction))
