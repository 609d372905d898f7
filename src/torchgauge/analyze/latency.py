"""From the records of one process, or of several, to the latency."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np

from torchgauge.analyze.latency_run import judged
from torchgauge.analyze.latency_warnings import (
    gathered,
    percentile_warnings,
    precision_warnings,
)
from torchgauge.analyze.median import median_interval
from torchgauge.analyze.percentiles import PERCENTILES, percentile_interval
from torchgauge.analyze.processes import process_interval
from torchgauge.analyze.yardstick import yardstick_of
from torchgauge.errors import MeasurementError
from torchgauge.model.latency import Latency, LatencyRun, Stage, Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchgauge.model.record import Interval, MeasurementWarning

_WORST_FIRST: tuple[Stop, ...] = (
    "interrupted",
    "time budget spent",
    "sample limit reached",
    "iterations done",
    "precision reached",
)


def combine(
    runs: Sequence[LatencyRun],
    *,
    target_rel_error: float = 0.01,
    cold_cache: bool = False,
    failures: Sequence[MeasurementWarning] = (),
) -> Latency:
    """Return the latency, in seconds, of one process or of several that measured the same thing.

    One process: the median's interval comes from order statistics. Three and more: the median of
    the process medians, and Student's t on their logs. Two: the same median and no interval,
    because two medians do not show how processes spread.

    Percentiles, mean, deviation and extremes are those of all steady samples together. With
    several processes the percentiles have no interval: the samples of one process share its
    luck, and an interval that takes them for independent would be too narrow.

    `failures` says which further processes gave no run; it becomes part of the warnings.

    Raises MeasurementError `samples-invalid` for no run.
    """
    if not runs:
        raise MeasurementError("No process gave a measurement.", id="samples-invalid")
    steady = np.concatenate([run.steady_samples for run in runs])
    middle = statistics.median(run.median for run in runs)
    found = runs[0].interval if len(runs) == 1 else process_interval([r.median for r in runs])
    interval = judged(found, middle, target_rel_error)
    stop = min((run.stop for run in runs), key=_WORST_FIRST.index)
    p90, p95, p99 = (float(np.quantile(steady, share)) for share in PERCENTILES.values())
    independent = sum(len(run.steady_samples) / run.autocorrelation for run in runs)
    return Latency(
        median=middle,
        mean=statistics.fmean(steady),
        std=float(steady.std(ddof=1)) if steady.size > 1 else None,
        min=float(steady.min()),
        max=float(steady.max()),
        p50=middle,
        p90=p90,
        p95=p95,
        p99=p99,
        interval=interval,
        interval_method=_method(len(runs), interval),
        percentile_intervals={"p50": interval, **_percentile_intervals(runs)},
        first_call=statistics.median(run.first_call for run in runs),
        steady=all(run.steady for run in runs),
        stop=stop,
        device_time=_device_time(runs),
        processes=tuple(runs),
        stages=_stages(runs),
        yardstick=yardstick_of(runs),
        cold_cache=cold_cache,
        warnings=(
            *failures,
            *gathered(runs),
            *precision_warnings(interval, middle, stop, len(runs)),
            *percentile_warnings(steady.size, independent),
        ),
    )


def _method(processes: int, interval: Interval | None) -> str:
    if interval is None:
        return "none: two processes" if processes == 2 else "none: too few samples"
    if processes == 1:
        return "order statistics under autocorrelation, one process"
    return f"Student's t on the log medians of {processes} processes"


def _percentile_intervals(runs: Sequence[LatencyRun]) -> dict[str, Interval | None]:
    if len(runs) > 1:
        return dict.fromkeys(PERCENTILES)
    steady, tau = runs[0].steady_samples, runs[0].autocorrelation
    return {name: percentile_interval(steady, share, tau) for name, share in PERCENTILES.items()}


def _device_time(runs: Sequence[LatencyRun]) -> float | None:
    medians = [
        statistics.median(run.device_samples[run.warmup :]) for run in runs if run.device_samples
    ]
    return statistics.median(medians) if medians else None


def _stages(runs: Sequence[LatencyRun]) -> tuple[Stage, ...]:
    stages = []
    for name in runs[0].stage_samples:
        steady = [run.stage_samples[name][run.warmup :] for run in runs]
        medians = [statistics.median(samples) for samples in steady]
        alone = len(runs) == 1
        interval = median_interval(steady[0]) if alone else process_interval(medians)
        stages.append(Stage(name=name, median=statistics.median(medians), interval=interval))
    return tuple(stages)
