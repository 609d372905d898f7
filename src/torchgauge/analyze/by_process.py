"""A timing metric's value in each process of a run: what a comparison of runs needs."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from torchgauge.model.latency import LatencyRun
from torchgauge.model.metric import Metric
from torchgauge.model.profile import Profile

_QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
_STAGES = ("forward", "backward", "optimizer")


def by_process(profile: Profile, metric: Metric) -> tuple[float, ...]:
    """Return the metric in SI units by process; nothing where a process does not have it."""
    if profile.latency is None or profile.latency.stop == "interrupted":
        return ()
    value = _reader(metric.name, profile)
    found = [value(run) for run in profile.latency.processes]
    known = tuple(one for one in found if one is not None and one > 0)
    return known if len(known) == len(found) else ()


def _reader(name: str, profile: Profile) -> Callable[[LatencyRun], float | None]:
    if name in _QUANTILES:
        return lambda run: _quantile(run.steady_samples, _QUANTILES[name])
    if name in _STAGES:
        return lambda run: _stage(run, name)
    if name == "throughput":
        batch = profile.target.batch
        return lambda run: batch / run.median if batch and run.median else None
    if name == "first_call":
        return lambda run: run.first_call
    if name == "device_time":
        return lambda run: _median(run.device_samples[run.warmup :])
    return lambda run: run.median


def _stage(run: LatencyRun, name: str) -> float | None:
    return _median(run.stage_samples.get(name, ())[run.warmup :])


def _median(values: tuple[float, ...]) -> float | None:
    return statistics.median(values) if values else None


def _quantile(values: tuple[float, ...], share: float) -> float | None:
    import numpy as np

    return float(np.quantile(values, share)) if values else None
