"""How many workers a rate needs, and what happens around that: by simulation, all estimated."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

import msgspec
import numpy as np

from torchgauge.analyze.capacity import plan_findings
from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import MOST_WORKERS, CapacityOptions
from torchgauge.analyze.capacity.knee import headroom, knee
from torchgauge.analyze.capacity.prediction import Predictor, judged
from torchgauge.analyze.capacity.server_model import MODEL_ERROR, ServerModel
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.errors import InputError, option_invalid
from torchgauge.records.environment import Environment
from torchgauge.records.record import Interval
from torchgauge.records.serving.capacity_plan import (
    CapacityPlan,
    PlannedSetting,
    Queues,
    ServiceTimes,
)
from torchgauge.records.serving.requests import Estimate, GoalVerdict, verdict_of_all
from torchgauge.records.target import TargetDescription

# Settings beside the one that is needed.
NEIGHBOURS = 2
# Delays that `tune` tries, in mean seconds of a single request.
DELAYS = (0.0, 0.5, 1.0, 2.0)
# How much of the usual is simulated of a setting that is tried.
TUNING_EFFORT = 0.15
# Likewise where intervals reach from one kind of queues to another, which is more than chance.
UNKNOWN_EFFORT = 0.3
HOUR, MILLION = 3600.0, 1e6

Note = Callable[[str], object]


class Planner:
    """Plans workers that have some service times."""

    def __init__(
        self, times: ServiceTimes, options: CapacityOptions, note: Note = lambda _: None
    ) -> None:
        times = msgspec.structs.replace(times, queues=options.queues or times.queues)
        if times.queues == "unknown":
            options = dataclasses.replace(options, effort=UNKNOWN_EFFORT * options.effort)
        self.times, self.options, self.note = times, options, note
        self.rate = options.offered
        self.model = model_of(times, options)
        if times.tokens:
            shapes = options.tokens or times.shapes
            self.times = msgspec.structs.replace(times, shapes=shapes)
        self.predictor = Predictor(self.model, options, max(times.error, MODEL_ERROR))
        self.max_batch = _max_batch(times, options, self.model.largest_batch)
        delay = times.max_delay if options.max_delay is None else options.max_delay
        self.max_delay = (delay or 0.0) if self.max_batch > 1 and not times.tokens else 0.0

    def workers(
        self, count: int, max_batch: int | None = None, max_delay: float | None = None
    ) -> Workers:
        """Return `count` workers as the options set them, or with these batches."""
        largest = self.max_batch if max_batch is None else max_batch
        delay = self.max_delay if max_delay is None else max_delay
        return Workers(count, largest, delay, self.times.collects, self.times.at_once)

    def plan(self, target: TargetDescription, environment: Environment) -> CapacityPlan:
        """Return the plan."""
        plan = self.empty(target, environment)
        needed = self._needed()
        around = needed.workers if needed is not None else self._start()
        numbers = range(max(1, around - NEIGHBOURS), around + NEIGHBOURS + 1)
        if self.options.workers is not None:
            numbers = range(around, around + 1)
        settings = [
            needed if needed is not None and number == needed.workers else self.setting(number)
            for number in numbers
            if around <= MOST_WORKERS
        ]
        front: tuple[PlannedSetting, ...] = ()
        if self.options.tune:
            front = self._front(settings)
        failure = None
        if needed is not None and needed.workers > 1:
            fewer = [setting for setting in settings if setting.workers == needed.workers - 1]
            failure = fewer[0] if fewer else self.setting(needed.workers - 1)
        plan = msgspec.structs.replace(
            plan,
            needed=needed,
            fewest_workers=self._fewest_workers(needed),
            idle_latency=self._estimate(
                lambda m: self.times.overhead + 1 / m.highest_rate(Workers())
            ),
            highest_rate=self._estimate(lambda model: model.highest_rate(self.workers(1))),
            settings=tuple(settings),
            failure=failure,
            front=front,
        )
        return plan_findings.with_findings(plan, self.options)

    def empty(self, target: TargetDescription, environment: Environment) -> CapacityPlan:
        """Return the plan without any setting."""
        discipline = "batches" if self.max_batch > 1 else "one by one"
        return CapacityPlan(
            target=target,
            environment=environment,
            times=self.times,
            discipline="continuous" if self.times.tokens else discipline,  # type: ignore[arg-type]
            arrivals=self.options.load,
            goals=self.options.goals,
            failures=self.options.failures,
            token_budget=self.options.token_budget if self.times.tokens else None,
        )

    def setting(self, count: int, *, interval: bool = False) -> PlannedSetting:
        """Return what `count` workers make of the rate; with `interval` the knee has one."""
        return self._planned(self.workers(count), interval=interval)

    def _planned(
        self, workers: Workers, *, interval: bool = False, predictor: Predictor | None = None
    ) -> PlannedSetting:
        self.note(f"{workers.count} × batch {workers.max_batch}")
        predictor = predictor or self.predictor
        prediction = predictor.predict(workers, self.rate)
        price = None if self.options.price is None else self.options.price * workers.count
        distributions = {} if prediction is None else prediction.distributions
        return PlannedSetting(
            workers=workers.count,
            max_batch=workers.max_batch,
            max_delay=workers.max_delay,
            rate=self.rate,
            latency=distributions.get("latency"),
            ttft=distributions.get("ttft"),
            tpot=distributions.get("tpot"),
            utilization=None if prediction is None else min(1.0, prediction.utilization),
            mean_batch=None if prediction is None else prediction.mean_batch,
            goals=judged(self.options.goals, prediction),
            knee=knee(predictor, workers, interval=interval),
            price=price,
            price_per_million=None if price is None else price / HOUR / self.rate * MILLION,
        )

    def _start(self) -> int:
        """Return the fewest workers whose queue stays finite; above `MOST_WORKERS` too many."""
        highest = self.model.highest_rate(self.workers(1))
        count = min(self.rate / highest, MOST_WORKERS)
        return self.options.workers or max(1, math.ceil(count + 1e-9))

    def _needed(self) -> PlannedSetting | None:
        """Return the setting of the fewest workers whose whole intervals meet the goals.

        With workers that may fail, those that are left meet them too. Without goals the queue stays
        finite. None if no number of workers is enough.
        """
        count = self.options.workers or self._count()
        if count is None or (self.options.workers and self._verdict(count) != "met"):
            return None
        return self.setting(count, interval=True)

    def _count(self) -> int | None:
        """Return the fewest workers that are enough; None where even very many are not."""
        begin, limit = self._range()
        if begin > limit or not self._likely(limit):
            return None
        likely = smallest_enough(self._likely, begin, limit)
        # A limit in the interval of so many workers lies in that of fewer too.
        if "met" not in (self._verdict(likely), self._verdict(limit)):
            return None
        return smallest_enough(lambda count: self._verdict(count) == "met", likely, limit)

    def _range(self) -> tuple[int, int]:
        """Return the fewest workers whose queue stays finite, and so many that no request waits."""
        failures, start = self.options.failures, self._start()
        # Twice as many as all could keep busy with single requests, and some; of several queues
        # some have requests that wait, however many there are.
        single = 1 / self.model.highest_rate(Workers(1, 1))
        times = 2 if self.times.queues == "one" else 20
        plenty = times * math.ceil(min(self.rate * single, MOST_WORKERS)) + 30
        return start + failures, min(MOST_WORKERS, max(plenty, 2 * start) + failures)

    def _fewest_workers(self, needed: PlannedSetting | None) -> int | None:
        """Return the fewest workers of which no goal is missed for sure; None if all miss one."""
        begin, limit = self._range()
        limit = limit if needed is None else needed.workers
        if self.options.workers or begin > limit or self._verdict(limit) == "missed":
            return None
        return smallest_enough(lambda count: self._verdict(count) != "missed", begin, limit)

    def _estimate(self, figure: Callable[[ServerModel], float]) -> Estimate:
        """Return a figure of the server, and between which it lies in 95 % of the resamples."""
        value, interval = figure(self.model), None
        if self.predictor.resamples:
            values = [value, *map(figure, self.predictor.resamples)]
            low, high = np.quantile(values, (0.025, 0.975)).tolist()
            interval = Interval(low=min(low, value), high=max(high, value))
        return Estimate(value=value, interval=interval, how="estimated")

    def _likely(self, count: int) -> bool:
        """Return whether those that failures leave seem enough, by a quick simulation."""
        self.note(f"{count} workers")
        workers = self.workers(count - self.options.failures)
        values = self.predictor.values(self.model, workers, self.rate, resampling=True)
        return bool(values) and (
            not self.options.goals or headroom(values, self.options.goals) >= 0
        )

    def _verdict(self, count: int) -> GoalVerdict:
        """Return whether whole intervals meet the goals, of those that failures leave too."""
        numbers = {count - self.options.failures, count}
        predictions = [self.predictor.predict(self.workers(n), self.rate) for n in numbers]
        if None in predictions:
            return "missed"
        goals = self.options.goals
        return verdict_of_all([r for part in predictions for r in judged(goals, part)]) or "met"

    def _front(self, planned: Sequence[PlannedSetting]) -> tuple[PlannedSetting, ...]:
        """Return those that meet the goals and no other beats in knee, latency and workers at once.

        Those that are planned already keep their figures, of longer simulations.
        """
        by_setting = {self.workers(s.workers, s.max_batch, s.max_delay): s for s in planned}
        numbers = sorted({setting.workers for setting in planned})
        sizes = {2**power for power in range(self.model.largest_batch.bit_length())}
        sizes |= {self.max_batch, self.model.largest_batch}
        single = 1 / self.model.highest_rate(Workers(1, 1))
        delays = {self.max_delay, *(share * single for share in DELAYS)}
        if self.times.tokens:
            delays = {0.0}
        options = dataclasses.replace(self.options, effort=TUNING_EFFORT * self.options.effort)
        predictor = Predictor(self.model, options, self.predictor.error)
        candidates = [
            self.workers(number, size, delay)
            for number in numbers
            for size in sorted(sizes)
            for delay in (sorted(delays) if size > 1 else [0.0])
        ]
        settings = [by_setting.get(w) or self._planned(w, predictor=predictor) for w in candidates]
        return unbeaten(s for s in settings if s.stable and s.verdict in ("met", None))


def smallest_enough(is_enough: Callable[[int], bool], begin: int, limit: int) -> int:
    """Return the first number from `begin` on that is enough, where `limit` is.

    Where a number is enough, larger ones are: steps double until one is, then halve.
    """
    below, step = begin - 1, 1
    while (count := min(below + step, limit)) < limit and not is_enough(count):
        below, step = count, 2 * step
    while count - below > 1:
        middle = (below + count) // 2
        below, count = (below, middle) if is_enough(middle) else (middle, count)
    return count


def unbeaten(settings: Iterable[PlannedSetting]) -> tuple[PlannedSetting, ...]:
    """Return the settings that no other beats in all of knee, p99 and workers, or equals."""
    rows: list[tuple[tuple[float, float, int], PlannedSetting]] = []
    for setting in settings:
        tail = setting.latency.percentile(0.99) if setting.latency is not None else None
        rate = -setting.knee.value if setting.knee is not None else 0.0
        rows.append(((rate, tail.value if tail else math.inf, setting.workers), setting))

    def beaten(costs: tuple[float, float, int]) -> bool:
        return any(
            other != costs and all(own >= better for own, better in zip(costs, other, strict=True))
            for other, _ in rows
        )

    return tuple(setting for costs, setting in rows if not beaten(costs))


def model_of(times: ServiceTimes, options: CapacityOptions) -> ServerModel:
    """Return the model of a server that has these service times.

    Raises InputError `goal-unfit`, `request-too-long`, `no-service-times`, `option-invalid`.
    """
    kinds = () if times.tokens else get_args(Queues)
    if options.queues is not None and options.queues not in kinds:
        expected = ", ".join(kinds) or "in turn, as requests to a language model go"
        raise option_invalid(f"Queues are {options.queues}, not {expected}.", "Leave them out.")
    if times.tokens:
        return TokenModel.from_times(times, options.tokens, options.token_budget)
    if not any(part.seconds for part in times.batches):
        raise InputError(
            "There are no service times.", id="no-service-times", remedy="Measure some batches."
        )
    if any(goal.metric in ("ttft", "tpot") for goal in options.goals):
        raise InputError(
            "Only a language model's plan has limits on ttft and tpot.",
            id="goal-unfit",
            remedy="Give a record of `torchgauge generate`, or limits on latency.",
        )
    model = BatchModel.from_times(times)
    if not min(model.means) > 1e-9:
        raise InputError(
            f"Batches of {model.means.index(min(model.means)) + 1} took 0 s.",
            id="no-service-times",
            cause="The clock of what named their seconds is too coarse for them.",
            remedy="Let the server name fractions of milliseconds, or give a sweep.",
        )
    return model


def _max_batch(times: ServiceTimes, options: CapacityOptions, largest: int) -> int:
    chosen = options.max_batch or times.max_batch or 1
    if chosen > largest:
        raise InputError(
            f"No batch of {chosen} was measured; the largest is {largest}.",
            id="batch-unmeasured",
            remedy=f"Give --max-batch {largest} or less, or measure larger ones.",
        )
    return chosen
