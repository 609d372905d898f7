"""What forbids a verdict on two runs' times, although their figures differ."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.analyze.percentiles import PERCENTILES
from torchgauge.analyze.stored import HostNoise
from torchgauge.model.latency import Latency
from torchgauge.model.metric import Metric

# Samples beyond a percentile that each of several processes must have.
FEWEST_BEYOND = 2

Sides = tuple[Latency | None, Latency | None]


def few_samples(metric: Metric, sides: Sides) -> str:
    """Return why a percentile cannot be judged: a side has too few samples to know it."""
    share = PERCENTILES.get(metric.name)
    if share is None:
        return ""
    few = _named([latency is None or not _known(latency, metric.name) for latency in sides])
    return f"n too small: {metric.name} has no interval in {few}" if few else ""


def disturbed(metric: Metric, sides: Sides, noise: HostNoise, *, few: bool) -> str | None:
    """Return why two times that differ are no proof that the model changed; None where they are.

    Other load counts unless the known spread is that of busy runs. With `few` processes a drift
    within a run is nothing that their spread holds.
    """
    known = [latency for latency in sides if latency is not None]
    if metric.name in ("latency", "throughput") and len(known) == 2 and _overlap(*known):
        return "the intervals of the two runs overlap"
    ids = [
        set() if latency is None else {warning.id for warning in latency.warnings}
        for latency in sides
    ]
    loaded = _named(["other-load" in found for found in ids])
    if loaded and not noise.busy:
        return f"other processes took much of the machine in {loaded}"
    drifting = _named(["drift" in found for found in ids])
    if drifting and few:
        return f"the latency drifted in {drifting}"
    return None


def _known(latency: Latency, name: str) -> bool:
    if latency.percentile_intervals.get(name) is not None:
        return True
    beyond = 1 - PERCENTILES[name]
    counts = [len(run.steady_samples) * beyond for run in latency.processes]
    return len(counts) > 1 and min(counts) >= FEWEST_BEYOND


def _overlap(old: Latency, new: Latency) -> bool:
    if old.interval is None or new.interval is None:
        return False
    return old.interval.low <= new.interval.high and new.interval.low <= old.interval.high


def _named(found: Sequence[bool]) -> str:
    names = ("the baseline", "the current run")
    return " and ".join(name for name, is_so in zip(names, found, strict=True) if is_so)
