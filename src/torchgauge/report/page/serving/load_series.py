"""A level over time: latency, requests a second and in flight, and what the server used."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.records.serving.level import Level, ServerUse
from torchgauge.report.page.serving.request_times import (
    Times,
    answered,
    latency_goals,
    nanoseconds,
    stretches,
)

MAX_BINS = 240
PER_BIN = 10  # requests of a bin on average, at least
Counts = npt.NDArray[np.int64]


def over_time(level: Level) -> dict[str, Any] | None:
    """Return the latency by when a request was due, and what was due, answered and in flight."""
    times = RequestTimes(level.requests)
    is_done = answered(times)
    if len(times.scheduled) < PER_BIN:
        return None
    edges = _edges(level, times)
    middles = (edges[:-1] + edges[1:]) / 2
    number = np.clip(np.searchsorted(edges, times.scheduled, "right") - 1, 0, len(middles) - 1)
    latency, service = times.latency, times.service
    return {
        "time": nanoseconds(middles),
        "median": nanoseconds(_quantiles(number, latency, is_done, len(middles), 0.5)),
        "p90": nanoseconds(_quantiles(number, latency, is_done, len(middles), 0.9)),
        "slowest": nanoseconds(_quantiles(number, latency, is_done, len(middles), 1.0)),
        "service": nanoseconds(_quantiles(number, service, is_done, len(middles), 0.5)),
        "due": _per_second(times.scheduled, edges),
        "answered": _per_second(times.last[is_done], edges),
        "in_flight": _most_in_flight(times.scheduled, _ends(level, times), edges).tolist(),
        "stretches": stretches(level),
        "goals": latency_goals(result.goal for result in level.goals),
        "closed": level.arrivals.kind in ("closed", "at once"),
    }


def _edges(level: Level, times: RequestTimes) -> Times:
    end = max(level.duration, float(times.scheduled.max()), 1e-6)
    count = min(MAX_BINS, max(1, len(times.scheduled) // PER_BIN))
    return np.linspace(0.0, end, count + 1)


def _quantiles(
    number: Counts, values: Times, is_shown: npt.NDArray[np.bool_], bins: int, fraction: float
) -> Times:
    """Return the value of each bin that a fraction of its values do not exceed; NaN without any."""
    is_counted = is_shown & np.isfinite(values)
    number, values = number[is_counted], values[is_counted]
    order = np.lexsort((values, number))
    begins = np.searchsorted(number[order], np.arange(bins))
    counts = np.bincount(number, minlength=bins)
    ranks = begins + np.maximum(np.ceil(fraction * counts).astype(np.int64) - 1, 0)
    quantiles = np.full(bins, np.nan)
    filled = counts > 0
    quantiles[filled] = values[order][ranks[filled]]
    return quantiles


def _per_second(moments: Times, edges: Times) -> list[float]:
    counts, _ = np.histogram(moments[np.isfinite(moments)], edges)
    return [float(f"{rate:.4g}") for rate in (counts / np.diff(edges)).tolist()]


def _ends(level: Level, times: RequestTimes) -> Times:
    """Return when the client no longer waited for a request: of most, when it was answered.

    That is the end of the client's time for it, else that of the level. One that ended otherwise
    without an answer has not waited.
    """
    limit = np.inf if level.sending is None else level.sending.timeout
    ended = np.nanmax([level.duration, *times.scheduled[-1:], *times.last])
    given_up = np.minimum(times.scheduled + limit, ended)
    unanswered = np.where(times.waiting, given_up, times.scheduled)
    return np.where(np.isnan(times.last), unanswered, times.last)


def _most_in_flight(due: Times, ended: Times, edges: Times) -> Counts:
    """Return the most requests in each bin that were due and still waited for."""
    moments = np.concatenate([due, ended])
    changes = np.concatenate([np.ones(len(due), np.int64), -np.ones(len(due), np.int64)])
    order = np.lexsort((changes, moments))
    moments, waiting = moments[order], np.append(0, np.cumsum(changes[order]))
    most_waiting: Counts = waiting[np.searchsorted(moments, edges[:-1], "left")]
    number = np.searchsorted(edges, moments, "right") - 1
    inside = (number >= 0) & (number < len(most_waiting))
    np.maximum.at(most_waiting, number[inside], waiting[1:][inside])
    return most_waiting


def server(level: Level) -> dict[str, Any] | None:
    """Return what the server's processes used over time; None without readings."""
    use = level.server
    if use is None or len(use.time) < 2:
        return None
    series = [entry for entry in _readings(use) if len(entry["values"]) == len(use.time)]
    requests = over_time(level)
    return {
        "time": [round(second * 1e9) for second in use.time],
        "series": series,
        "requests": None
        if requests is None
        else {name: requests[name] for name in ("time", "due", "answered")},
        "stretches": stretches(level),
        "rows": _facts(use),
    }  # fmt: skip


def _readings(use: ServerUse) -> list[dict[str, Any]]:
    limit = [] if use.cores is None else [[use.cores, f"{use.cores:g} cores"]]
    readings: list[tuple[str, str, Any, list[list[Any]]]] = [
        ("Processor cores in use", "number", use.cpu, limit),
        ("Cores in use by the busiest process or thread", "number", use.busiest, [[1, "one core"]]),
        ("Threads that had no core", "share", use.waiting, []),
        ("Memory", "bytes", use.memory, []),
        ("Read from disks", "bytes/s", use.read, []),
        ("Written to disks", "bytes/s", use.written, []),
        ("Sent by the machine", "bytes/s", use.sent, []),
        ("Received by the machine", "bytes/s", use.received, []),
        ("GPU in use", "share", use.gpu, [[1.0, "always"]]),
        ("GPU memory", "bytes", use.gpu_memory, []),
    ]
    return [
        {
            "title": title,
            "unit": unit,
            "values": [float(f"{value:.5g}") for value in values],
            "levels": levels,
        }
        for title, unit, values, levels in readings
        if any(values)
    ]


def _facts(use: ServerUse) -> list[list[str]]:
    cores = "" if use.cores is None else f"may use {use.cores:g} cores"
    rows = [["processes", f"{use.processes:,}", cores]]
    if use.cpu:
        rows.append(["cores in use", f"{max(use.cpu):.2f}", "at most"])
    if use.memory:
        rows.append(["memory", units.size(max(use.memory), 3), "at most"])
    limit = use.first_saturated or "none"
    rows.append(["at its limit", limit, "of cores, one core, memory and GPU"])
    return rows
