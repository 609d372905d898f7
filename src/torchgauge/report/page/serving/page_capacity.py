"""The page of a capacity plan: the workers needed, settings around them, service times, checks.

All of it is estimated by simulation but the service times and the measurements beside predictions.
Times are whole nanoseconds; None is unknown.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from torchgauge import units
from torchgauge.records.serving.capacity_plan import CapacityPlan, PlannedSetting, TokenTimes
from torchgauge.records.serving.level import Arrivals
from torchgauge.report.content.serving import capacity
from torchgauge.report.content.serving import serving_words as words
from torchgauge.report.content.serving.capacity import setting_name
from torchgauge.report.page import page_series as page_method
from torchgauge.report.page.page_document import figure, finding_entry, first_screen
from torchgauge.report.page.page_shorter import short, shortened_table
from torchgauge.report.page.page_tables import document_table
from torchgauge.report.page.serving.rate_curves import (
    DRAWN,
    percentile,
    percentile_goals,
    rate_text,
    scaled,
)


def settings(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the settings as a table, percentiles by workers and by rate."""
    if not plan.settings:
        return None
    return {
        "by_workers": _by_workers(plan),
        "goals": percentile_goals(plan.goals, "latency"),
        "knees": _knees(plan),
        "needed": None if plan.needed is None else plan.needed.workers,
        "rate": plan.arrivals.rate if plan.needed is None else plan.needed.rate,
        "table": document_table(capacity.settings(plan.settings, "settings")),
    }


def _by_workers(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the percentiles of settings that differ in workers alone, and which never settle."""
    chosen = plan.by_workers
    if len(chosen) < 2:
        return None
    return {
        "series": _series(chosen),
        "unstable": [workers for workers, setting in chosen.items() if not setting.stable],
        "rate": next(iter(chosen.values())).rate,
        "note": setting_name(next(iter(chosen.values()))),
    }


def _series(by_workers: dict[int, PlannedSetting]) -> list[dict[str, Any]]:
    series = []
    for fraction in DRAWN:
        points = [
            [workers, *scaled(estimate)]
            for workers, setting in by_workers.items()
            if setting.latency is not None
            and (estimate := setting.latency.percentile(fraction)) is not None
        ]
        if points:
            series.append({"label": f"p{100 * fraction:g}", "fraction": fraction, "points": points})
    return series


def _knees(plan: CapacityPlan) -> list[list[float | None]]:
    """Return (workers, knee and its ends) of settings that differ from the needed in workers."""
    knees = [
        [float(workers), *scaled(setting.knee, 1.0)]
        for workers, setting in plan.by_workers.items()
        if setting.knee is not None
    ]
    return knees if len(knees) > 1 else []


def front(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the settings that no other beats: knee and latency as points, and a table."""
    if not plan.front:
        return None
    points = [
        {
            "workers": setting.workers,
            "text": f"{setting.workers:,} worker{'s' * (setting.workers != 1)}, "
            f"{setting_name(setting)}",
            "batch": setting.max_batch,
            "knee": setting.knee.value,
            "latency": round(latency * 1e9),
        }
        for setting in plan.front
        if setting.knee is not None and (latency := percentile(setting.latency, 0.99))
    ]
    table = document_table(capacity.settings(plan.front, "front"))
    return {"points": points, "table": table}


MAX_CHECKS = 1_000  # rows of the table
MAX_OF_BATCH = 400  # points of one batch size


WORDS = (
    ["knee", "the highest rate within the goals", ""],
    ["utilization", "share of the time in which a worker computes", ""],
    ["settings", "workers behind one queue, with how requests are batched", ""],
    ["front", "settings that no other beats in knee, latency and workers at once", ""],
    ["failure", "what is left of the needed setting with a worker less, at the same rate", ""],
    ["intervals", "of the service times (bootstrap) and of the simulation", ""],
)


def title(plan: CapacityPlan) -> str:
    """Return the page's title."""
    return f"Capacity of {plan.target.name}"


def overview(plan: CapacityPlan) -> dict[str, Any]:
    """Return the first screen: the workers needed, what they reach, and what a lost one does."""
    return first_screen(
        _facts(plan),
        _figures(plan),
        (finding_entry(finding, "settings") for finding in plan.findings),
        plan.warnings,
        created=plan.environment.created,
        complete=not plan.interrupted,
        interrupted=plan.interrupted,
        notices=[f"Nothing is predicted: {short(plan.refused)}"] if plan.refused else [],
    )


def _facts(plan: CapacityPlan) -> Iterator[list[str]]:
    yield ["target", short(plan.target.name), short(plan.target.spec)]
    yield ["load", arrivals_text(plan.arrivals), ""]
    if plan.goals:
        yield ["goals", ", ".join(map(words.goal, plan.goals)), ""]
    workers = f"{plan.times.workers:,} worker{'s' * (plan.times.workers != 1)}"
    yield ["service times", capacity.SOURCES[plan.times.source], f"{plan.times.how} with {workers}"]
    yield ["discipline", capacity.discipline_text(plan), ""]


def arrivals_text(arrivals: Arrivals) -> str:
    """Return a load in words: "300 requests/s, Poisson arrivals"."""
    rate = "" if arrivals.rate is None else f"{rate_text(arrivals.rate)}, "
    return short(f"{rate}{words.arrivals(arrivals)}")


def _figures(plan: CapacityPlan) -> Iterator[dict[str, str]]:
    needed = plan.needed
    if needed is None:
        if not plan.refused:
            note = "no setting that was simulated meets the goals"
            yield _card("workers needed", units.UNKNOWN, note, "")
        return
    yield _card(
        "workers needed", capacity.workers_text(plan), capacity.setting_name(needed), "estimated"
    )
    yield from _latency_cards(needed)
    if needed.knee is not None:
        ends = needed.knee.interval
        note = "" if ends is None else f"95 %: {ends.low:,.4g} … {ends.high:,.4g}"
        yield _card("knee", rate_text(needed.knee.value), note, needed.knee.how)
    if needed.utilization is not None:
        value = units.percent(needed.utilization)
        yield _card("utilization", value, f"at {rate_text(needed.rate)}", "estimated")
    if plan.failure is not None:
        yield _failure_card(plan.failure)
    if needed.price is not None:
        per_million = needed.price_per_million
        note = "" if per_million is None else f"{per_million:,.4g} a million requests"
        yield _card("price of an hour", f"{needed.price:,.4g}", note, "estimated")


def _failure_card(failure: PlannedSetting) -> dict[str, str]:
    label = f"with {failure.workers:,} worker{'s' * (failure.workers != 1)} (one lost)"
    highest = None if failure.latency is None else failure.latency.percentile(0.99)
    if not failure.stable:
        return _card(label, "queue grows", "without end, at the same rate", "estimated")
    value = units.UNKNOWN if highest is None else f"{units.time(highest.value, 3)}"
    return _card(label, value, "p99 at the same rate", "estimated")


def _latency_cards(setting: PlannedSetting) -> Iterator[dict[str, str]]:
    for label, distribution, fraction in (
        ("latency p50", setting.latency, 0.5),
        ("latency p99", setting.latency, 0.99),
        ("time to first token p95", setting.ttft, 0.95),
        ("time per token p50", setting.tpot, 0.5),
    ):
        percentile = None if distribution is None else distribution.percentile(fraction)
        if percentile is not None:
            ends = percentile.interval
            note = "" if ends is None else f"95 %: {units.times(ends.low, ends.high, 3)}"
            yield _card(label, units.time(percentile.value, 3), note, percentile.how)


def _card(label: str, value: str, note: str, how: str) -> dict[str, str]:
    return figure(label, value, note, how, "settings")


def service(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return the service times by batch as points with their medians, or those of tokens."""
    times = plan.times
    if not times.batches and not times.tokens:
        return None
    return {
        "points": [
            [batch.batch, round(second * 1e9)]
            for batch in times.batches
            for second in _spread(batch.seconds)
        ],
        "medians": [
            [batch.batch, round(statistics.median(batch.seconds) * 1e9)]
            for batch in times.batches
            if batch.seconds
        ],
        "total": sum(len(batch.seconds) for batch in times.batches),
        "rows": [row for token in times.tokens for row in _token_rows(token)],
        "how": times.how,
        "overhead": round(times.overhead * 1e9),
        "source": capacity.SOURCES[times.source],
    }


def _spread(seconds: Sequence[float]) -> list[float]:
    """Return the times of a batch size; of many evenly chosen ranks, with both extremes."""
    if len(seconds) <= MAX_OF_BATCH:
        return list(seconds)
    ordered = sorted(seconds)
    ranks = np.unique(np.rint(np.linspace(0, len(ordered) - 1, MAX_OF_BATCH)).astype(int))
    return [ordered[rank] for rank in ranks.tolist()]


def _token_rows(token: TokenTimes) -> Iterator[list[str]]:
    yield [f"{token.stage}, any forward", units.time(token.fixed, 3), ""]
    yield [f"{token.stage}, per token", units.time(token.per_token, 3), ""]
    yield [f"{token.stage}, per 1,000 pairs", units.time(1_000 * token.per_pair, 3),
           f"single forwards vary by {units.percent(token.noise)}"]  # fmt: skip


def checks(plan: CapacityPlan) -> dict[str, Any] | None:
    """Return predictions beside measurements of the same load."""
    if not plan.checks:
        return None
    rows = document_table(capacity.checks_table(plan.checks))
    judged = [check.inside for check in plan.checks if check.inside is not None]
    inside = sum(judged)
    return {
        "rows": [
            {
                "figure": short(check.figure),
                "unit": "time",
                "rate": rate_text(check.rate),
                "predicted": scaled(check.predicted),
                "measured": scaled(check.measured),
                "inside": check.inside,
            }
            for check in plan.checks
        ],
        "table": shortened_table(rows, MAX_CHECKS),
        "note": f"{inside:,} of {len(judged):,} measurements lie inside their interval."
        if judged
        else "",
    }


def method(plan: CapacityPlan) -> dict[str, Any]:
    """Return what the words mean and how figures are known."""
    parts: list[list[Any]] = [
        ["Capacity", [*WORDS]],
        ["How a figure is known", [*page_method.KINDS]],
        ["Simulation", [
            ["discipline", capacity.discipline_text(plan), ""],
            ["arrivals", arrivals_text(plan.arrivals), f"seed {plan.arrivals.seed}"],
            ["service times", capacity.SOURCES[plan.times.source], plan.times.how],
            ["overhead", units.time(plan.times.overhead, 3), "a request, outside of its batch"],
        ]],
    ]  # fmt: skip
    return {"parts": parts, "figures": []}


PARTS = {
    "overview": overview,
    "settings": settings,
    "front": front,
    "checks": checks,
    "service": service,
    "method": method,
    "environment": page_method.environment,
}
