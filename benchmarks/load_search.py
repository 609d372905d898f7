"""How well the search of a capacity finds it: queues whose capacity is known, without sockets.

The limit of each goal is what a queue's percentile (or mean) is at a utilization, so that the
capacity is that utilization's rate. For each it prints how many levels and requests a search took,
how often the reported rate was within 3 % below the truth, and how often the truth lay below or
above the interval.

    python benchmarks/load_search.py --seeds 100 --requests 5000 20000 80000
    python benchmarks/load_search.py --seeds 100 --rate 1000 --chosen
"""

from __future__ import annotations

import argparse
import math
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from load_coverage import (
    FIXED,
    FRACTIONS,
    LOGNORMAL_VARIATION,
    MAX_BATCH,
    PER_REQUEST,
    Floats,
    truths,
)
from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.analyze.serving.levels import level as level_of
from torchgauge.analyze.serving.rate_search import RateSearch
from torchgauge.analyze.serving.rate_trials import Trial
from torchgauge.analyze.serving.request_times import RequestTimes, steady_window
from torchgauge.analyze.serving.saturation import saturation
from torchgauge.analyze.statistics.autocorrelation import CorrelatedSamples
from torchgauge.records.serving.level import Arrivals, Level
from torchgauge.records.serving.requests import Distribution, Estimate, Goal, GoalResult, Requests
from torchgauge.records.serving.serving import Capacity

QUEUES = ("M/M/1", "M/D/1", "lognormal", "batches")
GOALS = {"p95": 2, "p99": 3, "mean": 4}
USUAL_SECONDS = 10.0


class Case(NamedTuple):
    """A queue, the goal that is just met at a utilization, and seconds of a service."""

    queue: str
    utilization: float
    metric: str
    service: float

    @property
    def capacity(self) -> float:
        """The rate at which the goal is just met."""
        return self.utilization * self.most

    @property
    def most(self) -> float:
        """Requests per second of a server that is never idle."""
        if self.queue == "batches":
            return MAX_BATCH / (FIXED + PER_REQUEST * MAX_BATCH) / self.service
        return 1 / self.service

    @property
    def goal(self) -> Goal:
        """The limit."""
        index = GOALS[self.metric]
        limit = truths(self.queue, self.utilization)[index] * self.service
        fraction = None if self.metric == "mean" else FRACTIONS[index]
        return Goal(metric="latency", limit=limit, fraction=fraction, text=self.metric)

    def level(self, rate: float, seconds: float, seed: int, *, whole: bool = False) -> Level:
        """Return a level that begins with an idle server, as a run has it.

        Not `whole`: with what the search reads of it alone.
        """
        arrivals = Arrivals(kind="poisson", rate=rate, seed=seed)
        due = schedule(arrivals, duration=seconds)
        random = np.random.default_rng([seed, due.size])
        last = due + answered(self.queue, due / self.service, random) * self.service
        times = tuple(due.tolist())
        count = due.size
        requests = Requests(
            scheduled=times, sent=times, last=tuple(last.tolist()), fate=("done",) * count,
            status=(200,) * count, item=(0,) * count,
        )  # fmt: skip
        if whole:
            return level_of(
                requests, scenario="server", arrivals=arrivals, duration=seconds, goals=(self.goal,)
            )
        columns = RequestTimes(requests)
        window = steady_window(columns, seconds, "server")
        latency = (last - due)[(due >= window[0]) & (due < window[1])]
        distribution = Distribution(
            count=latency.size, mean=Estimate(value=float(latency.mean())),
            low=float(latency.min()), high=float(latency.max()),
            correlation=CorrelatedSamples(latency).correlation_time(0.5),
        )  # fmt: skip
        return Level(
            arrivals=arrivals, duration=seconds, window=window, requests=requests,
            latency=distribution, saturation=saturation(columns, window, closed=False),
            goals=(GoalResult(goal=self.goal, verdict="unclear"),),
        )  # fmt: skip


def answered(queue: str, due: Floats, random: np.random.Generator) -> Floats:
    """Return latencies in service times, of requests that find an idle server at first."""
    if queue == "batches":
        return batched(due)
    if queue == "M/M/1":
        services = random.exponential(1.0, due.size)
    elif queue == "M/D/1":
        services = np.ones(due.size)
    else:
        sigma = math.sqrt(math.log(1 + LOGNORMAL_VARIATION**2))
        services = random.lognormal(-(sigma**2) / 2, sigma, due.size)
    total = np.cumsum(services)
    return total + np.maximum.accumulate(due - (total - services)) - due


def batched(due: Floats) -> Floats:
    """Return latencies at a server that takes up to eight waiting requests at once."""
    times = due.tolist()
    ends: list[float] = []
    following, free = 0, 0.0
    while following < len(times):
        begin = max(free, times[following])
        taken = bisect_right(times, begin, following, min(following + MAX_BATCH, len(times)))
        free = begin + FIXED + PER_REQUEST * (taken - following)
        ends += [free] * (taken - following)
        following = taken
    return np.array(ends) - due


def searched(case: Case, seed: int, requests: int | None) -> tuple[Capacity, int, float]:
    """Return what a search finds, and how many levels and requests it took.

    Args:
        case: The queue and its goal.
        seed: Of the first schedule.
        requests: Of a level at the capacity; None: the search chooses.
    """
    usual = USUAL_SECONDS if requests is None else requests / case.capacity

    def due(trial: Trial) -> Floats:
        arrivals = Arrivals(kind="poisson", rate=trial.rate, seed=trial.seed)
        return schedule(arrivals, duration=usual * trial.length)

    search = RateSearch(
        case.most, due, seed=seed * 10_000, usual_seconds=usual if requests is None else None
    )
    levels, sent = 0, 0.0
    while (trial := search.next()) is not None:
        level = case.level(
            trial.rate, usual * trial.length, trial.seed, whole=trial.stage == "confirm"
        )
        search.add(trial, level)
        levels += 1
        sent += len(level.requests)
    return search.capacity(), levels, sent


def row(case: Case, seeds: int, requests: int | None) -> str:
    """Format how the searches of all seeds ended."""
    runs = [searched(case, seed, requests) for seed in range(seeds)]
    fits = [(c.rate, c.interval) for c, _, _ in runs if c.rate and c.interval]
    truth = case.capacity
    shares = [rate / truth - 1 for rate, _ in fits]
    below = sum(interval.low > truth for _, interval in fits)
    above = sum(interval.high < truth for _, interval in fits)
    within = sum(-0.03 <= share <= 0 for share in shares)
    confirmed = [c.confirmed for c, _, _ in runs]
    low, middle, high = np.quantile(shares or [math.nan], (0.05, 0.5, 0.95)) * 100
    centers = [(interval.low + interval.high) / 2 / truth - 1 for _, interval in fits]
    return (
        f"{case.queue:10} {case.utilization:4} {case.metric:5}"
        f" {np.mean([n for _, n, _ in runs]):6.1f} {max(n for _, n, _ in runs):4}"
        f" {np.mean([sent for _, _, sent in runs]):10,.0f}"
        f" {low:7.1f} {middle:6.1f} {high:6.1f} {within:7} {below:7} {above:6}"
        f" {100 * np.std(centers or [math.nan]):8.1f}"
        f" {confirmed.count(True):10} {confirmed.count(False):4} {seeds - len(fits):5}"
    )


def main() -> None:
    """Print a row for each queue, utilization, goal and length of a level."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--requests", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument("--chosen", action="store_true", help="the search chooses the lengths")
    parser.add_argument("--rate", type=float, default=1000.0, help="capacity, of --chosen")
    parser.add_argument("--queues", nargs="+", choices=QUEUES, default=QUEUES)
    parser.add_argument("--goals", nargs="+", choices=tuple(GOALS), default=tuple(GOALS))
    parser.add_argument("--utilizations", type=float, nargs="+", default=[0.5, 0.8, 0.9])
    arguments = parser.parse_args()
    print("rate − truth in % (5th, 50th, 95th of the seeds); of all seeds: rate within 3 % below,")
    print("truth below and above the interval; standard deviation of its center in %; confirmed,")
    print("refuted, without a fit")
    print(
        "queue      load goal  levels most   requests      5th   50th   95th  within"
        "   below  above   center  confirmed refuted none"
    )
    for requests in [None] if arguments.chosen else arguments.requests:
        print(
            "chosen lengths" if requests is None else f"{requests:,} requests a level", flush=True
        )
        for queue in arguments.queues:
            for metric in arguments.goals:
                for utilization in arguments.utilizations:
                    case = Case(queue, utilization, metric, 1.0)
                    case = case._replace(service=case.capacity / arguments.rate)
                    print(row(case, arguments.seeds, requests), flush=True)


if __name__ == "__main__":
    main()
