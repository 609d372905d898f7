"""The highest rate at which workers meet the goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from torchgauge.analyze.capacity.prediction import FULLEST, Predictor
from torchgauge.analyze.capacity.server_model import ServerModel
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.simulation_error import Figure
from torchgauge.records.record import Interval
from torchgauge.records.serving.distribution import Estimate
from torchgauge.records.serving.goal import Goal

# Loads that are tried from the fullest down, until one meets the goals.
LOADS = (0.985, 0.96, 0.92, 0.87, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.005)
HALVINGS = 6
# Of the load, to either side of the knee: the slope there corrects what resamples differ by.
SLOPE_STEP = 0.02


def knee(predictor: Predictor, workers: Workers, *, interval: bool = True) -> Estimate | None:
    """Return the highest rate within the goals; None without goals, or if no rate is."""
    goals = predictor.options.goals
    highest = predictor.model.highest_rate(workers)
    if not goals or not math.isfinite(highest):
        return None

    def room(load: float) -> float:
        values = predictor.values(predictor.model, workers, load * highest, resampling=True)
        return headroom(values, goals)

    over, under = FULLEST, 0.0
    for load in LOADS:
        if room(load) >= 0:
            under = load
            break
        over = load
    if not under:
        return None
    for _ in range(HALVINGS):
        middle = (under + over) / 2
        under, over = (middle, over) if room(middle) >= 0 else (under, middle)
    rate = (under + over) / 2 * highest
    if not interval or not predictor.resamples:
        reason = "" if interval else "Only that of the chosen setting has an interval."
        return Estimate(value=rate, reason=reason, how="estimated")
    rates = _of_resamples(predictor, workers, rate)
    low, high = np.quantile(rates, (0.025, 0.975), method="weibull").tolist()
    return Estimate(
        value=rate,
        interval=Interval(low=min(rate, low), high=max(rate, high)),
        how="estimated",
    )


def headroom(values: Mapping[Figure, float], goals: Sequence[Goal]) -> float:
    """Return limit ÷ figure − 1 of the goal that is nearest to its limit; −1 of endless queues."""
    rooms = []
    for goal in goals:
        metric = "latency" if goal.metric == "service" else goal.metric
        value = values.get((metric, goal.fraction))
        rooms.append(-1.0 if value is None else goal.limit / value - 1 if value else math.inf)
    return min(rooms)


def _of_resamples(predictor: Predictor, workers: Workers, rate: float) -> list[float]:
    """Return the knee of each resample, from one simulation near to it.

    A server that is so many times as fast has its knee there; what is left of the difference is
    taken off by the slope of the headroom, which near the highest rate is a line.
    """
    measured = predictor.model

    def room(server: ServerModel, load_rate: float) -> float:
        values = predictor.values(server, workers, load_rate, resampling=True)
        return headroom(values, predictor.options.goals)

    below, own, above = (
        room(measured, rate * (1 + side)) for side in (-SLOPE_STEP, 0.0, SLOPE_STEP)
    )
    slope = (above - below) / (2 * SLOPE_STEP * rate)
    rates = []
    for model in predictor.resamples:
        moved = rate * model.highest_rate(workers) / measured.highest_rate(workers)
        difference = room(model, moved) - own if slope < 0 else 0.0
        near = moved - difference / slope if slope < 0 else moved
        rates.append(max(0.5 * moved, min(1.5 * moved, near)))
    return rates
