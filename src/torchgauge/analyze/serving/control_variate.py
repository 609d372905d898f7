"""A percentile of a short run, corrected by a simulation of the very same schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.analyze.serving.request_times import RequestTimes, in_window
from torchgauge.records.serving.distribution import Percentile
from torchgauge.records.serving.level import Level

Floats = npt.NDArray[np.float64]

# Simulations of the level's own schedule.
REPEATS = 8
LONG_REQUESTS = 200_000
# Where simulated latencies follow the measured ones less closely, the schedule explains too little
# of the chance; where their medians differ by more, the simulation is of another server.
LEAST_CORRELATION = 0.9
MOST_DIFFERENCE = 0.1
# A queue that grows without end has no percentile: its second half is slower by more.
MOST_GROWTH = 1.5
# Arrivals in seconds and a seed to simulated latencies.
Simulation = Callable[[Floats, int], Floats]


def with_control(level: Level, simulated: Simulation) -> Level:
    """Add the highest percentile of latency, corrected for the chance of the schedule.

    Measured percentile × simulated percentile of a long run ÷ simulated percentile of the same
    schedule: estimated, and without an interval. None where the simulation does not follow what was
    measured, where requests were not answered, or in a closed loop.

    Args:
        level: A level of the server scenario.
        simulated: Simulates a server with the measured service times: the seconds at which requests
            arrive and a seed give their latencies.
    """
    columns = RequestTimes(level.requests)
    inside = in_window(columns, level.window)
    latency = columns.latency[inside]
    unstable = level.saturation is None or level.saturation.saturated is not False
    unknown = latency.size == 0 or not np.isfinite(latency).all()
    if unstable or unknown or level.arrivals.kind in ("closed", "at once", "file"):
        return level
    fraction = _highest_fraction(level)
    runs = np.array([simulated(columns.scheduled, seed)[inside] for seed in range(REPEATS)])
    long_run = _long_percentile(level, simulated, fraction)
    if long_run is None or not _follows(latency, runs):
        return level
    short_run = float(np.mean([_percentile(run, fraction) for run in runs]))
    value = _percentile(latency, fraction) * long_run / short_run
    controlled = Percentile(
        fraction=fraction,
        value=value,
        how="estimated",
        reason="It rests on a simulation of the same schedule, whose own error is not known.",
    )
    return msgspec.structs.replace(level, controlled=controlled)


def _highest_fraction(level: Level) -> float:
    fractions = [
        result.goal.fraction
        for result in level.goals
        if result.goal.metric == "latency" and result.goal.fraction is not None
    ]
    return max(fractions, default=0.99)


def _percentile(latency: Floats, fraction: float) -> float:
    return float(np.quantile(latency, fraction, method="inverted_cdf"))


def _long_percentile(level: Level, simulated: Simulation, fraction: float) -> float | None:
    """Return the percentile of a long run after its first tenth; None where the queue grows."""
    arrivals = msgspec.structs.replace(level.arrivals, seed=level.arrivals.seed + 1)
    due = schedule(arrivals, duration=math.inf, count=LONG_REQUESTS)
    latency = simulated(due, REPEATS)[LONG_REQUESTS // 10 :]
    earlier, later = np.array_split(latency, 2)
    if later.mean() > MOST_GROWTH * earlier.mean():
        return None
    return _percentile(latency, fraction)


def _follows(latency: Floats, runs: Floats) -> bool:
    typical = runs.mean(axis=0)
    medians = float(np.median(typical)), float(np.median(latency))
    if abs(medians[0] - medians[1]) > MOST_DIFFERENCE * medians[1]:
        return False
    if latency.std() == 0 or typical.std() == 0:
        return bool(latency.std() == typical.std())
    return bool(np.corrcoef(np.log(latency), np.log(typical))[0, 1] >= LEAST_CORRELATION)
