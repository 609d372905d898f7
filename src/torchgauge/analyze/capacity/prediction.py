"""Predict from service times what requests wait, with intervals."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.capacity.capacity_options import CapacityOptions
from torchgauge.analyze.capacity.server_model import (
    MODEL_ERROR,
    Figure,
    Outcome,
    ServerModel,
    Steadied,
    steadied,
    unit_arrivals,
    with_model_error,
)
from torchgauge.analyze.capacity.simulation import Floats, Workers
from torchgauge.analyze.serving.goals import goal_result
from torchgauge.records.serving.requests import (
    Distribution,
    Estimate,
    Goal,
    GoalResult,
    GoalVerdict,
    Percentile,
)

FRACTIONS = (0.5, 0.9, 0.95, 0.99)
METRICS = ("latency", "ttft", "tpot")
RESAMPLES = 80
# Of the resamples, how many may have a queue without end where an interval is still given.
LOST = 0.025
# Nearer to the highest rate no simulation is long enough: such a queue is taken as one without end.
FULLEST = 0.99
# Requests that are simulated: so many queues' memories, within limits; of any server at most.
FEWEST_REQUESTS, MOST_REQUESTS, MEMORIES = 200_000, 2_500_000, 8_000
# The same of a resample, which is compared with the same requests at the measured times.
FEWEST_RESAMPLED, MOST_RESAMPLED, MEMORIES_RESAMPLED = 20_000, 60_000, 150
WARM_UP = 0.05
# At this share of the highest rate no request waits for another; at far lower ones floats do not
# hold a request's milliseconds beside the seconds of the schedule.
SLOWEST = 1e-5
NORMAL = 1.96


class Prediction(NamedTuple):
    """What one setting shows at one rate.

    Attributes:
        distributions: By metric.
        utilization: Share of the time in which a worker computes.
        mean_batch: Requests per batch.
        may_grow: Whether the queue of too many resamples grows without end.
    """

    distributions: dict[str, Distribution]
    utilization: float
    mean_batch: float
    may_grow: bool


class LongRun(NamedTuple):
    """A simulation of some `requests`, what it shows, and how busy its workers were."""

    outcome: Outcome
    utilization: float
    requests: int
    figures: Steadied


class Predictor:
    """Predictions of one server under arrivals of one kind.

    The figures come from a long simulation. Each resample of the service times and the measured
    ones are simulated with the same requests and draws; by what factor their figures differ is how
    uncertain the measurement leaves them. With the error of the simulation itself, from its parts,
    it makes the interval.
    """

    def __init__(
        self, model: ServerModel, options: CapacityOptions, error: float = MODEL_ERROR
    ) -> None:
        self.model, self.options, self.error = model, options, error
        self._predictions: dict[tuple[Workers, float], Prediction | None] = {}
        self.fractions = sorted(
            {*FRACTIONS, *(g.fraction for g in options.goals if g.fraction is not None)}
        )

    @functools.cached_property
    def resamples(self) -> list[ServerModel]:
        """The server as other measurements might have shown it; none where that is unknown."""
        if not self.model.uncertain:
            return []
        generator = np.random.default_rng((self.options.seed, 2))
        return [self.model.resampled(generator) for _ in range(RESAMPLES)]

    def stable(self, workers: Workers, rate: float) -> bool:
        """Return whether the queue stays finite."""
        return rate < FULLEST * self.model.highest_rate(workers)

    def outcome(
        self, model: ServerModel, workers: Workers, rate: float, count: int
    ) -> tuple[Outcome, float]:
        """Return a simulation without its warm-up, and the utilization of its workers."""
        quick = min(self.model.highest_rate(workers), 1 / (workers.max_delay or 1e-12))
        simulated_rate = max(rate, SLOWEST * quick)
        arrivals = unit_arrivals(self.options, count) / simulated_rate
        outcome = model.run(arrivals, workers, self.options.seed)
        seconds = float(arrivals[-1]) + float(outcome.latency[-1])
        begin = int(WARM_UP * count)
        steady = Outcome(
            outcome.latency[begin:],
            outcome.busy,
            outcome.batches,
            *(None if part is None else part[begin:] for part in (outcome.ttft, outcome.tpot)),
        )
        busy = outcome.busy / (workers.places * seconds) if seconds > 0 else 0.0
        return steady, busy * rate / simulated_rate

    def requests(self, workers: Workers, rate: float, *, resampling: bool = False) -> int:
        """Return how many requests to simulate: a fuller queue remembers longer."""
        idle = 1 - min(FULLEST, rate / self.model.highest_rate(workers))
        limits = (FEWEST_REQUESTS, MOST_REQUESTS, MEMORIES)
        if resampling:
            limits = (FEWEST_RESAMPLED, MOST_RESAMPLED, MEMORIES_RESAMPLED)
        at_least, at_most, memories = limits
        count = min(at_most, max(at_least, memories / idle**2)) * self.model.effort(workers)
        return max(1000, int(min(count, MOST_REQUESTS) * self.options.effort))

    def values(
        self, model: ServerModel, workers: Workers, rate: float, *, resampling: bool = False
    ) -> dict[Figure, float]:
        """Return the figures of one simulation; none where the queue grows without end."""
        if not rate < FULLEST * model.highest_rate(workers):
            return {}
        count = self.requests(workers, rate, resampling=resampling)
        outcome, _ = self.outcome(model, workers, rate, count)
        return self._figures(outcome)

    def _figures(self, outcome: Outcome) -> dict[Figure, float]:
        figures: dict[Figure, float] = {}
        for metric in METRICS:
            times = outcome.times(metric)
            if times is not None and len(times):
                figures[metric, None] = float(times.mean())
                quantiles = np.quantile(times, self.fractions)
                figures |= {
                    (metric, fraction): float(value)
                    for fraction, value in zip(self.fractions, quantiles, strict=True)
                }
        return figures

    def long_run(self, workers: Workers, rate: float) -> LongRun | None:
        """Return a long simulation; None where the queue grows without end."""
        if not self.stable(workers, rate):
            return None
        count = self.requests(workers, rate)
        outcome, utilization = self.outcome(self.model, workers, rate, count)
        load = rate / self.model.highest_rate(workers)
        begin = count - len(outcome.latency)
        figures = steadied(outcome, self._figures, load, begin, self.options)
        return LongRun(outcome, utilization, count, figures)

    def predict(self, workers: Workers, rate: float) -> Prediction | None:
        """Return what requests wait; None where the queue grows without end."""
        if (workers, rate) not in self._predictions:
            self._predictions[workers, rate] = self._predicted(workers, rate)
        return self._predictions[workers, rate]

    def _predicted(self, workers: Workers, rate: float) -> Prediction | None:
        run = self.long_run(workers, rate)
        if run is None:
            return None
        outcome, utilization, count, (values, errors) = run
        factors = self._factors(workers, rate, values)
        estimates = {
            figure: _estimate(value, factors[figure], errors[figure], self.error)
            for figure, value in values.items()
        }
        distributions = {
            metric: self._distribution(metric, times, estimates)
            for metric in METRICS
            if (times := outcome.times(metric)) is not None and len(times)
        }
        mean_batch, may_grow = count / max(1.0, outcome.batches), any(map(_grows, factors.values()))
        return Prediction(distributions, utilization, mean_batch, may_grow)

    def _factors(
        self, workers: Workers, rate: float, figures: Iterable[Figure]
    ) -> dict[Figure, Floats]:
        """Return by which factors the figures of resamples differ; infinite of endless queues."""
        if not self.resamples:
            return {figure: np.array([]) for figure in figures}
        baseline = self.values(self.model, workers, rate, resampling=True)
        resampled = [self.values(model, workers, rate, resampling=True) for model in self.resamples]
        return {
            figure: np.array([
                values.get(figure, math.inf) / baseline[figure] if baseline.get(figure) else 1.0
                for values in resampled
            ])
            for figure in figures
        }  # fmt: skip

    def _distribution(
        self, metric: str, times: Floats, estimates: dict[Figure, Estimate]
    ) -> Distribution:
        mean = estimates[metric, None]
        percentiles = [
            Percentile(
                fraction=fraction, value=figure.value, interval=figure.interval,
                reason=figure.reason, how="estimated",
            )
            for fraction in self.fractions
            for figure in [estimates[metric, fraction]]
        ]  # fmt: skip
        return Distribution(
            count=len(times),
            mean=mean,
            low=float(times.min()),
            high=float(times.max()),
            percentiles=tuple(percentiles),
        )


def _grows(factors: Floats) -> bool:
    return int(np.isinf(factors).sum()) > LOST * len(factors)


def _estimate(value: float, factors: Floats, error: float, model_error: float) -> Estimate:
    """Return a figure with the interval that resamples and the simulation leave it."""
    if not len(factors):
        reason = "Too few service times were measured for an interval."
        return Estimate(value=value, reason=reason, how="estimated")
    if _grows(factors):
        count = np.isinf(factors).sum()
        reason = (
            f"In {count} of {len(factors)} resamples of service times the queue grows without end."
        )
        return Estimate(value=value, reason=reason, how="estimated")
    low, high = np.quantile(factors[np.isfinite(factors)], (0.025, 0.975), method="weibull")
    below = math.hypot(math.log(min(1.0, low)), NORMAL * error)
    above = math.hypot(math.log(max(1.0, high)), NORMAL * error)
    ends = value * math.exp(-below), value * math.exp(above)
    interval = with_model_error(value, *ends, model_error)
    return Estimate(value=value, interval=interval, how="estimated")


def judged(goals: Sequence[Goal], prediction: Prediction | None) -> tuple[GoalResult, ...]:
    """Return whether goals would be met; a queue without end misses all.

    Without an interval the value decides, unless some resamples have a queue without end.
    """
    return tuple(_judged(goal, prediction) for goal in goals)


def _judged(goal: Goal, prediction: Prediction | None) -> GoalResult:
    if prediction is None:
        return GoalResult(goal=goal, verdict="missed", reason="The queue grows without end.")
    metric = "latency" if goal.metric == "service" else goal.metric
    distribution = prediction.distributions.get(metric)
    if distribution is None:
        reason = f"There is no prediction of {metric}."
        return GoalResult(goal=goal, verdict="unclear", reason=reason)
    figure = distribution.mean if goal.fraction is None else distribution.percentile(goal.fraction)
    if figure is None:
        return GoalResult(goal=goal, verdict="unclear", reason="It was not simulated.")
    low = high = figure.value
    if figure.interval is not None:
        low, high = figure.interval.low, figure.interval.high
    elif prediction.may_grow:
        high = math.inf
    verdict: GoalVerdict = "unclear"
    if high <= goal.limit or low > goal.limit:
        verdict = "met" if high <= goal.limit else "missed"
    return goal_result(goal, verdict, figure, figure.reason)
