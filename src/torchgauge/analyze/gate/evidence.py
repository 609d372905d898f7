"""Evidence against a verdict on two runs' times: few samples, overlap, load, drift."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.statistics.percentiles import PERCENTILES
from torchgauge.records.headline.figure import RATES, level_estimate
from torchgauge.records.latency.latency import Latency
from torchgauge.records.metric import Metric
from torchgauge.records.serving.level import Level

# Samples beyond a percentile that each of several processes must have.
MIN_SAMPLES_BEYOND = 2

Sides = tuple[Latency | None, Latency | None]


def few_samples(metric: Metric, sides: Sides) -> str:
    """Return why a percentile cannot be judged: a side has too few samples to know it."""
    share = PERCENTILES.get(metric.name)
    if share is None:
        return ""
    lacking = _side_names(
        [latency is None or not percentile_is_known(latency, metric.name) for latency in sides]
    )
    return f"n too small: {metric.name} has no interval in {lacking}" if lacking else ""


def disturbed(metric: Metric, sides: Sides, noise: HostNoise, *, few_processes: bool) -> str | None:
    """Return why a difference of times does not prove that the model changed; None where it is.

    Other load counts unless the known spread is that of busy runs. With `few_processes` their
    spread does not contain a drift within a run.
    """
    latencies = [latency for latency in sides if latency is not None]
    if metric.name in ("latency", "throughput") and len(latencies) == 2 and _overlap(*latencies):
        return "the intervals of the two runs overlap"
    ids_by_side = [
        set() if latency is None else {warning.id for warning in latency.warnings}
        for latency in sides
    ]
    loaded = _side_names(["other-load" in warning_ids for warning_ids in ids_by_side])
    if loaded and not noise.busy:
        return f"other processes took much of the machine in {loaded}"
    drifting = _side_names(["drift" in warning_ids for warning_ids in ids_by_side])
    if drifting and few_processes:
        return f"the latency drifted in {drifting}"
    return None


def percentile_is_known(latency: Latency, name: str) -> bool:
    """Return whether there are enough samples to know a percentile, "p99"."""
    if latency.percentile_intervals.get(name) is not None:
        return True
    tail_share = 1 - PERCENTILES[name]
    counts = [len(run.steady_samples) * tail_share for run in latency.processes]
    return len(counts) > 1 and min(counts) >= MIN_SAMPLES_BEYOND


def _overlap(old: Latency, new: Latency) -> bool:
    if old.interval is None or new.interval is None:
        return False
    return old.interval.low <= new.interval.high and new.interval.low <= old.interval.high


def _side_names(flags: Sequence[bool]) -> str:
    names = ("the baseline", "the current run")
    return " and ".join(name for name, flag in zip(names, flags, strict=True) if flag)


def growth(name: str, level: Level, levels: Sequence[Level]) -> float:
    """Return d ln figure ÷ d ln(time of the machine) at a level: 1 where nothing queues.

    `name` is as of `level_estimate`, `levels` are those of the same record.
    """
    if name == "goodput":
        return _of_goodput(level, growth("latency_p99", level, levels))
    if name in RATES or level.arrivals.rate is None:
        return 1.0
    own, other = level_estimate(level, name), _other(name, level, levels)
    if own is None or own.value <= 0:
        return 1.0
    if other is None:
        # The fastest request met no queue: it stands for a rate of 0.
        distribution = getattr(level, name.rpartition("_")[0])
        return max(1.0, own.value / distribution.low) if distribution.low > 0 else math.inf
    low, high = sorted([(level.arrivals.rate, own.value), other])
    if high[1] <= low[1]:
        return 1.0
    fall = (1 / low[1] - 1 / high[1]) / (high[0] - low[0])
    return max(1.0, (1 / low[1] + fall * low[0]) * own.value)


def _other(name: str, level: Level, levels: Sequence[Level]) -> tuple[float, float] | None:
    """Return rate and time of the lowest other rate without saturation; None without any."""
    points = [
        (other.arrivals.rate, estimate.value)
        for other in levels
        if other.arrivals.rate is not None
        and (other.scenario, other.arrivals.kind) == (level.scenario, level.arrivals.kind)
        and other.arrivals.rate != level.arrivals.rate
        and not (other.saturation is not None and other.saturation.saturated)
        and (estimate := level_estimate(other, name)) is not None
        and estimate.value > 0
    ]
    return min(points, default=None)


def _of_goodput(level: Level, of_times: float) -> float:
    """Return how goodput falls: the share that misses is about exp(−limit ÷ T)."""
    if level.goodput is None or not level.offered:
        return 1.0
    missing = 1 - level.goodput.value / level.offered
    missing = min(max(missing, 1 / (level.count + 1)), 1 - 1 / (level.count + 1))
    return missing * -math.log(missing) / (1 - missing) * of_times
