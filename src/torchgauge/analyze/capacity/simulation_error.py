"""How far the figures of a simulation lie from those of one without end, and what explains it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.server_model import Outcome
from torchgauge.analyze.capacity.simulation import Floats
from torchgauge.analyze.capacity.unit_arrivals import unit_arrivals

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
    own = _reference(unit_arrivals(options, count), load)[begin:]
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


def _reference(arrivals: Floats, load: float) -> Floats:
    """Return the latencies of requests, one per second, that take `load` seconds each."""
    total = load * np.arange(1, len(arrivals) + 1)
    latencies: Floats = total + np.maximum.accumulate(arrivals - total + load) - arrivals
    return latencies


@functools.lru_cache(maxsize=64)
def _long_reference(
    options: CapacityOptions, load: float, fractions: tuple[float | None, ...], count: int
) -> tuple[dict[float | None, float], dict[float | None, float]]:
    """Return the quantities of a reference of `count` requests, and their relative errors."""
    latencies = _reference(unit_arrivals(options, count), load)[count // 50 :]
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
