"""Statistics and warnings of the samples of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from torchgauge.analyze.latency.latency_warnings import early_warnings, run_warnings
from torchgauge.analyze.latency.warmup import find_warmup
from torchgauge.analyze.statistics.autocorrelation import autocorrelation_time
from torchgauge.analyze.statistics.median import median_interval
from torchgauge.errors import MeasurementError
from torchgauge.records.latency.latency import LatencyRun, Stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchgauge.records.record import Interval


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
    early = early_warnings(x[fixed:settled], x[settled:], warmup_given=warmup is not None)
    warnings_by_id = {
        warning.id: warning
        for warning in (*early, *run_warnings(steady, detected_warmup, clock_resolution))
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
