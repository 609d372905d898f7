"""Evidence against a verdict on two runs' times: few samples, overlap, load, drift."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.statistics.percentiles import PERCENTILES
from torchgauge.records.latency.latency import Latency
from torchgauge.records.metric import Metric

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
