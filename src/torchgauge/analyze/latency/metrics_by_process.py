"""A timing metric's value in each process of a run, or in each generation, to compare runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.metric import Metric
from torchgauge.records.profile import Profile

_QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
_STAGES = ("forward", "backward", "optimizer")
_CALLS: dict[str, Callable[[GenerationCall], float | None]] = {
    "ttft": lambda call: call.first_token,
    "tpot": lambda call: call.per_token,
    "tokens": lambda call: call.batch * call.new_tokens / call.duration if call.duration else None,
}


def by_process(profile: Profile, metric: Metric) -> tuple[float, ...]:
    """Return the metric in SI units by process; nothing where a process does not have it.

    Of a generation it is by call, of energy by window of calls, all in one process.
    """
    if metric.figure.startswith("energy"):
        return _by_window(profile, metric)
    if metric.name in _CALLS:
        return _by_call(profile.generation, _CALLS[metric.name])
    if profile.latency is None or profile.latency.stop == "interrupted":
        return ()
    read_value = _reader(metric.name, profile)
    values = [read_value(run) for run in profile.latency.processes]
    valid_values = tuple(value for value in values if value is not None and value > 0)
    return valid_values if len(valid_values) == len(values) else ()


def _by_call(
    cell: GenerationCell | None, read_value: Callable[[GenerationCall], float | None]
) -> tuple[float, ...]:
    values = [read_value(call) for call in (() if cell is None else cell.timed_calls)]
    return tuple(value for value in values if value is not None and value > 0)


def _by_window(profile: Profile, metric: Metric) -> tuple[float, ...]:
    energy = profile.energy
    if energy is None or energy.joules is None:
        return ()
    share = 1.0 if metric.name == "energy" else (energy.per_token or 0.0) / energy.joules
    return tuple(joules * share for joules in energy.by_window if joules * share > 0)


def _reader(name: str, profile: Profile) -> Callable[[LatencyRun], float | None]:
    if name in _QUANTILES:
        return lambda run: _quantile(run.steady_samples, _QUANTILES[name])
    if name in _STAGES:
        return lambda run: _median(run.stage_samples.get(name, ())[run.warmup :])
    if name == "throughput":
        batch = profile.target.batch
        return lambda run: batch / run.median if batch and run.median else None
    if name in ("mfu", "hfu"):
        return lambda run: _share(profile, name, run.median)
    if name == "first_call":
        return lambda run: run.first_call
    if name == "device_time":
        return lambda run: _median(run.device_samples[run.warmup :])
    return lambda run: run.median


def _share(profile: Profile, name: str, seconds: float) -> float | None:
    """Return the utilization at the median of one process."""
    used = profile.utilization
    share = None if used is None else used.share_at(seconds)
    if used is None or share is None:
        return None
    return share if name == "mfu" else share * used.executed_flops / used.model_flops


def _median(values: tuple[float, ...]) -> float | None:
    return statistics.median(values) if values else None


def _quantile(values: tuple[float, ...], share: float) -> float | None:
    import numpy as np

    return float(np.quantile(values, share)) if values else None
