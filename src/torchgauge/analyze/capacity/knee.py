"""The highest rate at which workers meet the goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from torchgauge.analyze.capacity.prediction import FULLEST, NORMAL, Predictor
from torchgauge.analyze.capacity.server_model import Figure, ServerModel
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.records.record import Interval
from torchgauge.records.serving.requests import Estimate, Goal

# Loads that are tried from the fullest down, until one meets the goals.
LOADS = (0.985, 0.96, 0.92, 0.87, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.005)
HALVINGS = 6
# Of the load, to either side of the knee: the slope there corrects what resamples differ by.
SLOPE_STEP = 0.02
# No correction moves a knee by more.
MOST_MOVED = 1.2


def knee(predictor: Predictor, workers: Workers, *, interval: bool = True) -> Estimate | None:
    """Return the highest rate within the goals; None without goals, or if no rate is."""
    goals = predictor.options.goals
    highest = predictor.model.highest_rate(workers)
    if not goals or not math.isfinite(highest):
        return None
    over, under = FULLEST, 0.0
    for load in LOADS:
        if _room(predictor, workers, load * highest) >= 0:
            under = load
            break
        over = load
    if not under:
        return None
    for _ in range(HALVINGS):
        middle = (under + over) / 2
        enough = _room(predictor, workers, middle * highest) >= 0
        under, over = (middle, over) if enough else (under, middle)
    rate, error = _corrected(predictor, workers, (under + over) / 2 * highest)
    if not interval or not predictor.resamples:
        reason = "" if interval else "Only that of the chosen setting has an interval."
        return Estimate(value=rate, reason=reason, how="estimated")
    rates = _of_resamples(predictor, workers, rate)
    low, high = np.quantile(rates, (0.025, 0.975), method="weibull").tolist()
    below, above = (
        math.hypot(max(0.0, reach), NORMAL * error) for reach in (rate - low, high - rate)
    )
    return Estimate(
        value=rate,
        interval=Interval(low=max(0.0, rate - below), high=rate + above),
        how="estimated",
    )


def _corrected(predictor: Predictor, workers: Workers, rate: float) -> tuple[float, float]:
    """Return the rate at which a long simulation reaches the goals, and its standard error.

    The short ones that found `rate` have the luck of few requests, which moves the knee by more
    than the measurement does. Near it the headroom is a line of the rate.
    """
    goals = predictor.options.goals
    run, slope = predictor.long_run(workers, rate), _slope(predictor, workers, rate)
    if run is None or slope >= 0:
        return rate, 0.0
    room = headroom(run.figures.values, goals)
    moved = min(max(rate - room / slope, rate / MOST_MOVED), rate * MOST_MOVED)
    highest = FULLEST * predictor.model.highest_rate(workers)
    error = max(run.figures.errors.get(figure_of(goal), 0.0) for goal in goals)
    return min(moved, highest), error * (1 + room) / -slope


def _slope(predictor: Predictor, workers: Workers, rate: float) -> float:
    """Return by how much the headroom changes with the rate, from two short simulations."""
    below, above = (
        _room(predictor, workers, rate * (1 + side)) for side in (-SLOPE_STEP, SLOPE_STEP)
    )
    return (above - below) / (2 * SLOPE_STEP * rate)


def _room(
    predictor: Predictor, workers: Workers, rate: float, model: ServerModel | None = None
) -> float:
    """Return the headroom that a short simulation shows, of the measured server or a resample."""
    values = predictor.values(model or predictor.model, workers, rate, resampling=True)
    return headroom(values, predictor.options.goals)


def figure_of(goal: Goal) -> Figure:
    """Return the figure that a goal limits; a simulated client sends at once."""
    return "latency" if goal.metric == "service" else goal.metric, goal.fraction


def headroom(values: Mapping[Figure, float], goals: Sequence[Goal]) -> float:
    """Return limit ÷ figure − 1 of the goal that is nearest to its limit; −1 of endless queues."""
    rooms = []
    for goal in goals:
        value = values.get(figure_of(goal))
        rooms.append(-1.0 if value is None else goal.limit / value - 1 if value else math.inf)
    return min(rooms)


def _of_resamples(predictor: Predictor, workers: Workers, rate: float) -> list[float]:
    """Return the knee of each resample, from one simulation near to it.

    A server that is so many times as fast has its knee there; what is left of the difference is
    taken off by the slope of the headroom, which near the highest rate is a line.
    """
    highest = predictor.model.highest_rate(workers)
    own, slope = _room(predictor, workers, rate), _slope(predictor, workers, rate)
    rates = []
    for model in predictor.resamples:
        moved = rate * model.highest_rate(workers) / highest
        difference = _room(predictor, workers, moved, model) - own if slope < 0 else 0.0
        near = moved - difference / slope if slope < 0 else moved
        rates.append(max(0.5 * moved, min(1.5 * moved, near)))
    return rates
