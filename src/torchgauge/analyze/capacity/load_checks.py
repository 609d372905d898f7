"""Predictions beside the requests of a load that was measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.capacity.server_model import ServerModel, with_model_error
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.records.serving.capacity_plan import Check
from torchgauge.records.serving.distribution import Estimate
from torchgauge.records.serving.level import Level

FIGURES = (("latency", 0.5), ("latency", 0.99), ("ttft", 0.5), ("ttft", 0.95))
NAMES = {"latency": "latency", "ttft": "TTFT"}
RESAMPLES = 100
FEWEST_REQUESTS = 100
# A measured median so many times that of every resample shows another server.
FAR: Mapping[str, float] = {"latency p50": 1.25}
# A plan is held to all that it says; single stalls of a machine lengthen a tail.
FAR_OF_PLAN: Mapping[str, float] = {
    "latency p50": 1.25, "TTFT p50": 1.25, "latency p99": 2.0, "TTFT p95": 2.0,
}  # fmt: skip
FAR_SECONDS = 2e-3


def checks(model: ServerModel, level: Level, workers: Workers, seed: int = 0) -> tuple[Check, ...]:
    """Return p50 and p99 as simulated with the schedule of a level, beside those measured.

    Of a stream of tokens also p50 and p95 of TTFT.

    The simulation is sent what the server was sent, so chance in the schedule is in both. The
    interval of a prediction is where 95 % of such runs of that length lie: each draws its own
    service times from a resample of the measured ones; what the model errs is added.
    """
    sent, measured, steady = _answered(level)
    if steady.sum() < FEWEST_REQUESTS:
        return ()
    generator = np.random.default_rng((seed, 3))
    runs = []
    for number in range(RESAMPLES):
        resample = model.resampled(generator) if model.uncertain else model
        runs.append(resample.run(sent, workers, number))
    return tuple(
        _check(metric, fraction, times, measured[metric][steady], level)
        for metric, fraction in FIGURES
        if steady.sum() * (1 - fraction) >= 5
        and len(times := [part[steady] for run in runs if (part := run.times(metric)) is not None])
    )


def _answered(level: Level) -> tuple[Floats, dict[str, Floats], npt.NDArray[np.bool_]]:
    """Return sent, seconds to first content and answer, and which lie in the steady window."""
    rows = sorted(
        (sent, (last if first is None else first) - sent, last - sent,
         level.window[0] <= due < level.window[1])
        for due, sent, first, last in itertools.zip_longest(
            level.requests.scheduled, level.requests.sent, level.requests.first,
            level.requests.last,
        )
        if sent is not None and last is not None
    )  # fmt: skip
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return table[:, 0], {"ttft": table[:, 1], "latency": table[:, 2]}, table[:, 3] > 0


def _check(
    metric: str, fraction: float, runs: list[Floats], measured: Floats, level: Level
) -> Check:
    values = np.array([float(np.quantile(run, fraction)) for run in runs])
    low, middle, high = np.quantile(values, (0.025, 0.5, 0.975), method="weibull").tolist()
    interval = with_model_error(middle, low, high)
    value = float(np.quantile(measured, fraction))
    return Check(
        figure=f"{NAMES[metric]} p{100 * fraction:g}",
        rate=level.arrivals.rate or level.offered or 0.0,
        predicted=Estimate(value=middle, interval=interval, how="estimated"),
        measured=Estimate(value=value, reason="These requests alone: no steady state."),
        inside=interval.low <= value <= interval.high,
    )


def unlike(all_checks: tuple[Check, ...], far: Mapping[str, float] = FAR) -> str:
    """Return how measured figures contradict the predictions; empty where they agree.

    Only what lies `far` out counts: a machine that is a few percent slower than it was is no other
    server.
    """
    for check in all_checks:
        interval, times = check.predicted.interval, far.get(check.figure)
        if times is None or interval is None:
            continue
        seconds = check.measured.value
        off = max(seconds - interval.high, interval.low - seconds)
        if off > FAR_SECONDS and (
            seconds > times * interval.high or seconds < interval.low / times
        ):
            ratio = seconds / check.predicted.value
            return (
                f"At {check.rate:,.4g} requests/s the {check.figure} was {ratio:.2g} times as long "
                "as one queue with these service times would have it."
            )
    return ""
