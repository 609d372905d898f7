"""Figures of serving: those of each level of load, and the capacity."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Literal

from torchgauge.records.headline.figure import Figure, Named, Unit, by_name
from torchgauge.records.serving.capacity import Capacity
from torchgauge.records.serving.distribution import Estimate
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.serving import Serving

RATES: Named = {
    "completed": ("1/s", "Requests answered per second"),
    "goodput": ("1/s", "Requests per second within all goals"),
    "tokens": ("1/s", "Tokens of answers per second"),
}
TIMES: dict[Literal["latency", "service", "wait", "ttft", "itl", "tpot"], str] = {
    "latency": "Time of a request from when it was due",
    "service": "Time of a request from when it was sent",
    "wait": "Time from when a request was due to when it was sent",
    "ttft": "Time to the first token from when the request was due",
    "itl": "Gap between two contents of a stream",
    "tpot": "Time per token after the first",
}
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
CAPACITY = "serving_capacity"


def level_estimate(level: Level, name: str) -> Estimate | None:
    """Return a rate ("goodput") or a percentile ("ttft_p99") of a level; None where unknown."""
    if name in RATES:
        estimate: Estimate | None = getattr(level, name)
        return estimate
    time, _, percentile = name.rpartition("_")
    distribution = getattr(level, time)
    return None if distribution is None else distribution.percentile(PERCENTILES[percentile])


def level_figures(level: Level) -> Iterator[Figure]:
    """Yield the figures of a level; those that it does not have are unknown."""
    offered = level.offered
    yield Figure("serving_offered", "1/s", "counted", "Requests due per second", offered)
    for name, (unit, text) in RATES.items():
        yield _bounded(f"serving_{name}", unit, text, level_estimate(level, name))
    for time, text in TIMES.items():
        for percentile in PERCENTILES:
            share = f"{text}: {percentile.removeprefix('p')} % took at most"
            name = f"{time}_{percentile}"
            yield _bounded(f"serving_{name}", "s", share, level_estimate(level, name))
    mean = None if level.latency is None else level.latency.mean
    yield _bounded("serving_latency_mean", "s", f"{TIMES['latency']}, on average", mean)
    text = "Share of requests without a whole answer"
    errors = level.errors
    if errors is None and level.failed_share is not None:
        errors = Estimate(value=level.failed_share, how="counted")
    yield _bounded("serving_errors", "ratio", text, errors)
    lateness = None if level.client is None else level.client.lateness_p99
    text = "Lateness of the client, which 99 % of its requests did not exceed"
    yield Figure("serving_lateness_p99", "s", "measured", text, lateness)
    yield from _judgements(level)


def _judgements(level: Level) -> Iterator[Figure]:
    """Yield what limits the level: the growth of its backlog, the server's use, MLPerf's rule."""
    saturated = None if level.saturation is None else level.saturation.saturated
    text = "Whether the backlog grew (1) or did not (0)"
    value = None if saturated is None else int(saturated)
    yield Figure("serving_saturated", "", "measured", text, value)
    cpu = () if level.server is None else level.server.cpu
    text = "Cores that the server's processes used on average"
    value_of_cpu = statistics.fmean(cpu) if cpu else None
    yield Figure("serving_server_cores", "", "measured", text, value_of_cpu)
    memory = () if level.server is None else level.server.memory
    text = "Memory of the server's processes at its highest"
    yield Figure("serving_server_memory", "B", "measured", text, max(memory, default=None))
    stopping = level.early_stopping
    text = "Percentile by MLPerf's early stopping, of independent requests only"
    labels = () if stopping is None else (("fraction", f"{stopping.fraction:g}"),)
    estimate = None if stopping is None else stopping.estimate
    yield Figure("serving_mlperf_estimate", "s", "estimated", text, estimate, labels=labels)


def _bounded(name: str, unit: Unit, text: str, estimate: Estimate | None) -> Figure:
    if estimate is None:
        return Figure(name, unit, "measured", text, None, bounded=True)
    return Figure(name, unit, estimate.how, text, estimate.value, True, estimate.interval)


def capacity_figure(capacity: Capacity | None) -> Figure:
    """Return the capacity; a rate without an interval is "at least"."""
    text = "Highest rate of requests within all goals"
    if capacity is None:
        return Figure(CAPACITY, "1/s", "measured", text, None, bounded=True)
    return Figure(
        CAPACITY, "1/s", "measured", text, capacity.rate, True, capacity.interval,
        at_least=capacity.rate is not None and capacity.interval is None,
    )  # fmt: skip


def serving_figures(serving: Serving) -> Iterator[Figure]:
    """Yield the capacity, how many levels there are, and the figures of each."""
    yield capacity_figure(serving.capacity)
    text = "Levels of load"
    yield Figure("serving_levels", "", "counted", text, len(serving.levels))
    loads: list[dict[str, str]] = []
    figures_of_levels = []
    for level in serving.levels:
        repetition = {"again": str(loads.count(level.load))} if level.load in loads else {}
        loads.append(level.load)
        labels = tuple({**level.load, **repetition}.items())
        figures_of_levels.append(
            [f._replace(labels=(*labels, *f.labels)) for f in level_figures(level)]
        )
    yield from by_name(figures_of_levels)
