"""How many workers a rate needs, and what happens around that: by simulation, all estimated."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

import msgspec
import numpy as np

from torchgauge import units
from torchgauge.analyze.capacity.batch_model import BatchModel
from torchgauge.analyze.capacity.capacity_options import MOST_WORKERS, CapacityOptions
from torchgauge.analyze.capacity.prediction import FULLEST, NORMAL, Predictor, judged
from torchgauge.analyze.capacity.server_model import MODEL_ERROR, Figure, ServerModel
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.token_model import TokenModel
from torchgauge.errors import InputError, option_invalid
from torchgauge.records.environment import Environment
from torchgauge.records.finding import Finding
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.capacity_plan import (
    CapacityPlan,
    PlannedSetting,
    Queues,
    ServiceTimes,
)
from torchgauge.records.serving.requests import (
    Distribution,
    Estimate,
    Goal,
    GoalVerdict,
    verdict_of_all,
)
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
        return with_findings(plan, self.options)

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


# A rate so near to the knee leaves no room for a busy hour.
NEAR = 0.9
# In a server, cores and caches are shared with reading and answering.
OUTSIDE = ("call", "sweep", "profile", "generation")
# Beyond this half-width of its interval p99 is doubtful; so many batches are named as show this.
UNCERTAIN, NARROW = 0.15, 0.1


def with_findings(plan: CapacityPlan, options: CapacityOptions) -> CapacityPlan:
    """Return the plan with its findings and warnings."""
    findings = tuple(_findings(plan, options))
    return msgspec.structs.replace(plan, findings=findings, warnings=tuple(_warnings(plan)))


def _findings(plan: CapacityPlan, options: CapacityOptions) -> Iterator[Finding]:
    worker_rate = plan.highest_rate.value if plan.highest_rate is not None else math.inf
    needed, failure = plan.needed, plan.failure
    rate = options.offered
    if needed is None:
        title, evidence, remedy = _none(plan, options, worker_rate)
        yield Finding(
            id="capacity-none", severity="serious", title=title, evidence=evidence, remedy=remedy
        )
        return
    if needed.knee is not None and rate > NEAR * needed.knee.value:
        yield Finding(
            id="capacity-near-knee",
            severity="warning",
            title="The rate is close to the knee",
            evidence=f"{rate:,.4g} requests/s are {units.percent(rate / needed.knee.value)} of the "
            f"{needed.knee.value:,.4g} that {needed.workers} workers stand within the goals.",
            remedy="Plan for the rate of the busiest minutes, or with --headroom failure:1.",
        )
    if failure is not None and not failure.stable:
        highest = failure.workers * worker_rate
        grows = rate > highest
        yield Finding(
            id="capacity-failure",
            severity="warning",
            title="Without one worker the queue grows without end"
            if grows
            else "Without one worker the queue hardly comes to rest",
            evidence=f"{failure.workers:,} answer {highest:,.4g} requests/s at most: "
            + (
                f"{rate - highest:,.3g} more wait with each second."
                if grows
                else f"{rate:,.5g} are more than {units.percent(FULLEST)} of that."
            ),
            remedy="--headroom failure:1 plans for it.",
        )


def _none(plan: CapacityPlan, options: CapacityOptions, worker_rate: float) -> tuple[str, str, str]:
    """Return why no setting is enough: title, evidence, remedy."""
    rate, count = options.offered, options.workers
    if count is None and 2 * rate / worker_rate + options.failures > MOST_WORKERS:
        return (
            f"{MOST_WORKERS:,} workers are not enough",
            f"One answers {worker_rate:,.4g} requests/s at most, and {rate:,.4g} come.",
            "Plan for a lower rate or fewer that fail, or make the model faster.",
        )
    if count is None:
        return (
            "No number of workers meets the goals for sure",
            "Even where no request waits for a worker, the batch's delay and its seconds are over "
            "a limit, or too uncertain.",
            "Shorten --max-delay, lower --max-batch, make the model faster, or measure longer.",
        )
    workers = f"{count:,} worker{'s' * (count != 1)}"
    setting, remedy = plan.settings[0], "Leave --workers out to find how many it takes."
    evidence = "The settings below have the figures."
    if not setting.stable:
        evidence = (
            f"At most {count * worker_rate:,.4g} requests/s are answered, and {rate:,.5g} come."
        )
        return f"The queue of {workers} does not come to rest", evidence, remedy
    if setting.verdict in ("met", None):  # of those that failures leave it is not
        return f"{workers} are too few where {options.failures:,} fail", evidence, remedy
    how = "miss the goals" if setting.verdict == "missed" else "do not meet the goals for sure"
    if count == 1:
        how = how.replace("miss ", "misses ").replace("do not", "does not")
    return f"{workers} {how}", evidence, remedy


def _warnings(plan: CapacityPlan) -> Iterator[MeasurementWarning]:
    setting = plan.needed or next((s for s in plan.settings if s.stable), None)
    if plan.times.source == "answers":
        yield MeasurementWarning(
            id="times-inferred",
            message="The server tells no service times: they are inferred from when it answered. "
            "That other workers are like it is assumed.",
            remedy="Run the load that would refute it: --verify URL, of as many workers.",
        )
    if plan.times.source in OUTSIDE:
        yield MeasurementWarning(
            id="times-outside-server",
            message="The service times were measured outside of a server, where reading requests "
            "and answering them take none of the model's cores.",
            remedy=_in_the_server(plan, setting),
        )
    if setting is not None and setting.latency is not None and plan.times.queues != "unknown":
        yield from _uncertain(setting.latency, sum(len(p.seconds) for p in plan.times.batches))
    if plan.discipline == "continuous":
        cache = [part for part in plan.times.tokens if part.stage == "decode"]
        if cache and cache[0].memory is None:
            yield MeasurementWarning(
                id="cache-unlimited",
                message="How many positions the cache holds is unknown: it is taken as unlimited.",
                remedy="Measure two batches with memory: torchgauge generate TARGET --batch 1,4",
            )


def _in_the_server(plan: CapacityPlan, setting: PlannedSetting | None) -> str:
    """Return how to measure in a server, or where none of ours is, how to hold the plan to one."""
    rate = plan.arrivals.rate or 1.0
    if plan.discipline == "continuous":
        prompt, new = plan.times.shapes[0] if plan.times.shapes else (128, 64)
        return (
            "Hold the plan to your server by --verify URL, or by: torchgauge load URL "
            f"--api openai-chat --tokens {prompt:d}:{new:d} --rate {rate:.4g}"
        )
    rate /= 1 if setting is None else setting.workers
    batch = 1 if setting is None else setting.max_batch
    spec = shlex.quote(plan.target.spec)
    return (
        f"Measure them in a server: torchgauge load {spec} --rate {rate / 2:.3g},{rate:.3g} "
        f"--max-batch {batch:d} -o load.json"
    )


def _uncertain(latency: Distribution, batches: int) -> Iterator[MeasurementWarning]:
    """Warn where the measured batches leave the tail open, with how many would show it."""
    if latency.mean.interval is None:
        yield MeasurementWarning(
            id="no-intervals",
            message=f"Figures have no intervals: {latency.mean.reason}",
            remedy="Measure more batches.",
        )
        return
    tail = latency.percentile(0.99)
    if tail is None or tail.interval is None or not batches:
        return
    reach = math.log(tail.interval.high / tail.interval.low) / 2
    if reach > UNCERTAIN:
        # What the mean of the service times is known to goes as one over the root of their number.
        needed = units.significant(batches * (reach / NARROW) ** 2, 2)
        yield MeasurementWarning(
            id="batches-few",
            message=f"p99 is known to {units.percent(reach)} only: the service times are "
            "uncertain, and the nearer to the highest rate, the more of that is in the wait.",
            remedy=f"Measure longer: some {needed} batches in place of {batches:,} show it to "
            f"{units.percent(NARROW)}, or plan with another worker.",
        )
