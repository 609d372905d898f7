"""What a plan needs of a model of a server: any discipline that can be simulated has it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.analyze.serving.rate_trials import one_by_one
from torchgauge.records.record import Interval
from torchgauge.records.serving.capacity_plan import Check
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import Estimate, Requests

# How far simulation and server differ beside the service times (how a batch fills while the server
# wakes, and the like): of 40 levels of servers whose batches took given times 95 % were within
# this share (benchmarks/capacity_real.py --paced).
MODEL_ERROR = 0.04


class Outcome(NamedTuple):
    """What simulated requests waited, in the order of their schedule.

    Attributes:
        latency: Seconds from arrival to answer.
        busy: Seconds that the workers computed, in all.
        batches: How many batches they computed.
        ttft: Seconds from arrival to the first token, of a language model.
        tpot: Seconds per token after the first; none of requests for a single token.
    """

    latency: Floats
    busy: float
    batches: float
    ttft: Floats | None = None
    tpot: Floats | None = None

    def times(self, metric: str) -> Floats | None:
        """Return the seconds by the name of a goal's metric; None where it has none."""
        named = {"latency": self.latency, "service": self.latency}
        return {**named, "ttft": self.ttft, "tpot": self.tpot}.get(metric)


class ServerModel(Protocol):
    """A server whose service times are known."""

    @property
    def uncertain(self) -> bool:
        """Whether `resampled` differs: enough was measured to say how certain it is."""

    def effort(self, workers: Workers) -> float:
        """Return how many requests can be simulated in the time of one of a batch."""

    @property
    def largest_batch(self) -> int:
        """The largest batch whose time is known."""

    def run(self, arrivals: Floats, workers: Workers, seed: int) -> Outcome:
        """Simulate requests that arrive at these seconds; one seed draws alike times."""

    def highest_rate(self, workers: Workers) -> float:
        """Return the requests per second from which on the queue grows without end."""

    def resampled(self, generator: np.random.Generator) -> ServerModel:
        """Return the server as another measurement of the same length might have shown it."""


def with_model_error(value: float, low: float, high: float, error: float = MODEL_ERROR) -> Interval:
    """Return the interval of a simulated figure between these ends, with what the model errs."""
    below, above = (
        math.hypot(math.log(end / value), math.log1p(error)) if value > 0 < end else 0.0
        for end in (min(low, value), max(high, value))
    )
    return Interval(low=value * math.exp(-below), high=value * math.exp(above))


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


def known_columns(requests: Requests, *names: str) -> Floats:
    """Return columns of the requests that have all of these, in the order of the first."""
    rows = zip(*(getattr(requests, name) for name in names), strict=False)
    values = sorted(row for row in rows if None not in row)
    return np.array(values, dtype=np.float64).reshape(-1, len(names)).T


def met_idle(sent: Floats, last: Floats) -> npt.NDArray[np.bool_]:
    """Return which requests were sent when all earlier ones were answered."""
    answered: npt.NDArray[np.bool_] = sent[1:] >= np.maximum.accumulate(last)[:-1]
    return np.append(np.ones(len(sent[:1]), dtype=np.bool_), answered)


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


def unlike(
    all_checks: tuple[Check, ...], far: Mapping[str, float] = FAR, if_shorter: str = ""
) -> str:
    """Return how measured figures contradict the predictions; empty where they agree.

    Only what lies `far` out counts: a machine that is a few percent slower than it was is no other
    server. `if_shorter` is added where they are shorter.
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
            ) + if_shorter * (ratio < 1)
    return ""


@functools.lru_cache(maxsize=8)
def unit_arrivals(options: CapacityOptions, count: int) -> Floats:
    """Return the seconds of `count` requests of the options' kind; the first is at 0.

    Their rate is exact: near the highest one, what chance adds to it would decide about the waits.
    A recorded schedule is repeated, without a gap at its end other than those within it.
    """
    load, generator = options.load, np.random.default_rng((options.seed, 1))
    if load.kind == "file":
        within = np.diff(np.array(options.recorded))
        gaps = np.resize(within / within.mean(), count)
    elif load.kind == "constant":
        gaps = np.ones(count)
    elif load.kind == "gamma":
        shape = 1 / (load.variation or 1.0) ** 2
        gaps = generator.gamma(shape, 1 / shape, count)
    else:
        gaps = generator.exponential(1.0, count)
    if load.kind in ("poisson", "gamma"):
        gaps = gaps / gaps.mean()
    times: Floats = np.cumsum(gaps) - gaps[0]
    times.setflags(write=False)
    return times


Figure = tuple[str, float | None]
"""A metric and the fraction of a percentile, None for the mean."""
Figures = Callable[[Outcome], dict[Figure, float]]

# Parts of a simulation whose figures say how certain those of all are.
PARTS = 25
# Requests of the reference queue, which is simulated forty times as fast.
REFERENCE = 4_000_000
# A schedule that explains less of how parts differ corrects nothing.
EXPLAINED = 0.3
# Below it no request waits in the reference, and its seconds drown in those between them.
LEAST_LOAD = 1e-4


class Steadied(NamedTuple):
    """The figures of a simulation without what its schedule had by chance.

    `errors` are their relative standard errors.
    """

    values: dict[Figure, float]
    errors: dict[Figure, float]


def steadied(
    outcome: Outcome, figures: Figures, load: float, begin: int, options: CapacityOptions
) -> Steadied:
    """Return the figures of a simulation, corrected by a queue with the same schedule.

    The reference is a worker that takes requests one by one in constant time and is as busy: near
    its highest rate any queue follows its schedule as this one does (a control variate). Where the
    parts of the simulation show by how much a figure follows the reference, what the reference of
    this schedule differs by from a long one is taken off.

    Args:
        outcome: The simulation, without its first `begin` requests.
        figures: What is computed of requests.
        load: The rate over the highest rate.
        begin: Likewise.
        options: The kind of arrivals.
    """
    load = max(load, LEAST_LOAD)
    parts = [figures(part) for part in _parts(outcome)]
    count = begin + len(outcome.latency)
    own = one_by_one(unit_arrivals(options, count), load)[begin:]
    fractions = tuple(fraction for _, fraction in figures(outcome))
    of_parts = [_quantities(part, fractions) for part in np.array_split(own, PARTS)]
    of_own = _quantities(own, fractions)
    long_count = int(REFERENCE * min(1.0, options.effort))
    long, long_errors = _long_reference(options, round(load, 6), fractions, long_count)
    values, errors = figures(outcome), {}
    for figure, value in values.items():
        fraction = figure[1]
        logs = np.log([max(part.get(figure, value), 1e-300) for part in parts])
        references = np.log([part[fraction] for part in of_parts])
        slope, deviation = _fit(references, logs)
        values[figure] = value * (long[fraction] / of_own[fraction]) ** slope
        error = deviation / math.sqrt(PARTS)
        errors[figure] = math.hypot(error, slope * long_errors[fraction])
    return Steadied(values, errors)


def _fit(references: Floats, logs: Floats) -> tuple[float, float]:
    """Return the slope against the reference, 0 where it explains little, and what is left."""
    x, y = references - references.mean(), logs - logs.mean()
    spread = float(np.sqrt(y @ y / (PARTS - 1)))
    if not x @ x > 1e-12 or not spread:
        return 0.0, spread
    slope = float(x @ y / (x @ x))
    residual = y - slope * x
    remaining = float(np.sqrt(residual @ residual / (PARTS - 2)))
    return (slope, remaining) if remaining**2 < (1 - EXPLAINED) * spread**2 else (0.0, spread)


@functools.lru_cache(maxsize=64)
def _long_reference(
    options: CapacityOptions, load: float, fractions: tuple[float | None, ...], count: int
) -> tuple[dict[float | None, float], dict[float | None, float]]:
    """Return the quantities of a reference of `count` requests, and their relative errors."""
    latencies = one_by_one(unit_arrivals(options, count), load)[count // 50 :]
    parts = [_quantities(part, fractions) for part in np.array_split(latencies, PARTS)]
    errors = {
        fraction: float(np.std(np.log([part[fraction] for part in parts]), ddof=1))
        / math.sqrt(PARTS)
        for fraction in parts[0]
    }
    return _quantities(latencies, fractions), errors


def _quantities(times: Floats, fractions: tuple[float | None, ...]) -> dict[float | None, float]:
    """Return the mean (None) and percentiles."""
    chosen = sorted({fraction for fraction in fractions if fraction is not None})
    quantiles = np.quantile(times, chosen).tolist()
    return {None: float(times.mean()), **dict(zip(chosen, quantiles, strict=True))}


def _parts(outcome: Outcome) -> list[Outcome]:
    """Return the requests of a simulation, divided into equal parts in their order."""
    ttft, tpot = (
        [None] * PARTS if times is None else np.array_split(times, PARTS)
        for times in (outcome.ttft, outcome.tpot)
    )
    latency = np.array_split(outcome.latency, PARTS)
    return [
        Outcome(part, 0.0, 0, *streams) for part, *streams in zip(latency, ttft, tpot, strict=True)
    ]
