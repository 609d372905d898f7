"""Combine the records of one or several processes into a latency."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from torchgauge.analyze.latency import drift
from torchgauge.analyze.latency.noise import STUDENT_T, yardstick_of
from torchgauge.analyze.latency.run_spread import RunSpread, headline, process_interval
from torchgauge.analyze.latency.stopping import find_warmup
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time, percentile_time
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.analyze.statistics.percentiles import PERCENTILES, percentile_interval
from torchgauge.errors import MeasurementError
from torchgauge.records.latency.latency import Latency, LatencyRun, Stage, Stop, Undisturbed
from torchgauge.records.record import Interval, MeasurementWarning


def run_figures(
    samples: Sequence[float],
    *,
    first_call: float,
    stop: Stop,
    warmup: int | None = None,
    least_warmup: int = 0,
    keep: int | None = None,
    device_samples: Sequence[float] = (),
    stage_samples: Mapping[str, Sequence[float]] | None = None,
    target_rel_error: float = 0.01,
    clock_resolution: float | None = None,
) -> LatencyRun:
    """Return one process's record from its timed calls after the first, in order, in seconds.

    `warmup` samples are left out where given. Otherwise the data decide, and at least
    `least_warmup` go; with `keep`, all but the last `keep` go, of which the caller knows that they
    are no fewer. One sample always stays. `device_samples` and each of `stage_samples` are as long
    as `samples`, or absent. `clock_resolution` is in seconds.

    Raises MeasurementError `samples-invalid` for no sample, a negative one, a NaN or an infinity.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size == 0 or not np.isfinite(x).all() or x.min() < 0:
        raise MeasurementError(
            "The timed calls have no durations, or an invalid one.",
            id="samples-invalid",
            cause="There is no sample, or a negative or non-finite one.",
            remedy="Measure with a monotonic clock.",
        )
    fixed = min(least_warmup if warmup is None else warmup, x.size - 1)
    detected_warmup = find_warmup(x[fixed:])
    settled = fixed + detected_warmup.samples
    by_data = settled if keep is None else x.size - keep
    left_out = fixed if warmup is not None else by_data
    steady = x[left_out:]
    tau = autocorrelation_time(steady)
    early = drift.early_warnings(x[fixed:settled], x[settled:], warmup_given=warmup is not None)
    warnings_by_id = {
        warning.id: warning
        for warning in (*early, *drift.run_warnings(steady, detected_warmup, clock_resolution))
    }
    middle = float(np.median(steady))
    return LatencyRun(
        samples=tuple(x.tolist()),
        warmup=left_out,
        steady=detected_warmup.end_found,
        first_call=first_call,
        median=middle,
        interval=judged(median_interval(steady, tau), middle, target_rel_error),
        autocorrelation=tau,
        stop=stop,
        device_samples=tuple(device_samples),
        stage_samples={name: tuple(values) for name, values in (stage_samples or {}).items()},
        warnings=tuple(warnings_by_id.values()),
    )


def judged(interval: Interval | None, median: float, target_rel_error: float) -> Interval | None:
    """Return the interval marked `short` where it is wider than ±`target_rel_error`·`median`."""
    if interval is None or interval.half_width <= target_rel_error * median:
        return interval
    return msgspec.structs.replace(interval, short=True)


_WORST_FIRST: tuple[Stop, ...] = (
    "interrupted",
    "time budget spent",
    "sample limit reached",
    "iterations done",
    "short run done",
    "precision reached",
)

# Samples beyond a percentile that each of several processes must have for an interval.
MIN_SAMPLES_BEYOND = 2
RUNS_DIFFER = 0.2
"""Standard deviation of the log between runs that are minutes apart, on two shared cores."""
FREEDOM = 8
"""Degrees of freedom that it counts for."""


def combine(
    runs: Sequence[LatencyRun],
    *,
    target_rel_error: float | None = None,
    cold_cache: bool = False,
    failures: Sequence[MeasurementWarning] = (),
    spread: RunSpread | None = None,
) -> Latency:
    """Return the latency, in seconds, of one process or of several that measured the same thing.

    The median is that of the processes' medians; `analyze.processes` has its interval, for which
    `spread` is what earlier runs on this host tell. It is marked `short` where it is wider than
    ±`target_rel_error`, if that was asked for. `failures` of further processes become warnings.

    Percentiles, mean, deviation and extremes are those of all steady samples together. Over several
    processes a percentile's interval comes from that percentile in each of them: the samples of one
    process share its luck. Raises MeasurementError `samples-invalid` for no run.
    """
    if not runs:
        raise MeasurementError("No process gave a measurement.", id="samples-invalid")
    steady = np.concatenate([run.steady_samples for run in runs])
    middle = statistics.median(run.median for run in runs)
    within = runs[0].interval if len(runs) == 1 else None
    interval, scope, method = headline([run.median for run in runs], within, spread)
    if target_rel_error is not None:
        interval = judged(interval, middle, target_rel_error)
    stop = min((run.stop for run in runs), key=_WORST_FIRST.index)
    p90, p95, p99 = (float(np.quantile(steady, share)) for share in PERCENTILES.values())
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
        interval_scope=scope,
        interval_method=method,
        percentile_intervals={"p50": interval, **_percentile_intervals(runs)},
        first_call=statistics.median(run.first_call for run in runs),
        steady=all(run.steady for run in runs),
        stop=stop,
        device_time=_device_time(runs),
        processes=tuple(runs),
        stages=tuple(_stages(runs)),
        yardstick=yardstick_of(runs),
        undisturbed=undisturbed_of(runs, middle),
        cold_cache=cold_cache,
        warnings=(
            *failures,
            *drift.merged_warnings(runs),
            *drift.precision_warnings(interval, middle, stop, len(runs)),
            *drift.percentile_warnings(runs),
            *drift.page_fault_warnings(runs),
        ),
    )


def undisturbed_of(runs: Sequence[LatencyRun], median: float) -> Undisturbed | None:
    """Return it beside the measured median, in seconds; None where no process found it.

    It is the least of the processes: others disturb a process, and speed up none.
    """
    logs = [math.log(run.undisturbed) for run in runs if run.undisturbed]
    if not logs or median <= 0:
        return None
    spread = statistics.variance(logs) / len(logs) if len(logs) > 1 else 0.0
    reach = STUDENT_T[FREEDOM] * math.sqrt(RUNS_DIFFER**2 + spread)
    low, value, high = (math.exp(min(logs) + sign * reach) for sign in (-1, 0, 1))
    return Undisturbed(
        value=value,
        interval=Interval(low=low, high=high, scope="runs"),
        speed=min(1.0, value / median),
    )


def _percentile_intervals(runs: Sequence[LatencyRun]) -> dict[str, Interval | None]:
    if len(runs) == 1:
        steady = runs[0].steady_samples
        return {
            name: percentile_interval(steady, share, percentile_time(steady, share))
            for name, share in PERCENTILES.items()
        }
    return {name: _over_processes(runs, share) for name, share in PERCENTILES.items()}


def _over_processes(runs: Sequence[LatencyRun], share: float) -> Interval | None:
    """Return the interval of a percentile; None where a process has too few samples beyond it."""
    if min(len(run.steady_samples) * (1 - share) for run in runs) < MIN_SAMPLES_BEYOND:
        return None
    return process_interval([float(np.quantile(run.steady_samples, share)) for run in runs])


def _device_time(runs: Sequence[LatencyRun]) -> float | None:
    medians = [
        statistics.median(run.device_samples[run.warmup :]) for run in runs if run.device_samples
    ]
    return statistics.median(medians) if medians else None


def _stages(runs: Sequence[LatencyRun]) -> Iterator[Stage]:
    for name in runs[0].stage_samples:
        steady = [run.stage_samples[name][run.warmup :] for run in runs]
        medians = [statistics.median(samples) for samples in steady]
        single_process = len(runs) == 1
        interval = median_interval(steady[0]) if single_process else process_interval(medians)
        yield Stage(name=name, median=statistics.median(medians), interval=interval)
