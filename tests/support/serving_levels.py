"""Levels of load made by hand: requests of a queue whose service times are known.

`workers` answer in order of arrival and take `service` seconds a request (Lindley's recursion), so
latencies follow from the schedule. Intervals are binomial ranks at a number of requests divided by
`correlation`; they stand for what the analysis computes and are not checked against it.
"""

import heapq
import math
import random

import msgspec

from torchgauge.records.record import Interval
from torchgauge.records.serving.level import Arrivals, ClientLoad, Level, Saturation, ServerUse
from torchgauge.records.serving.requests import (
    Distribution,
    Estimate,
    Goal,
    GoalResult,
    Percentile,
    Requests,
)

SERVICE = 8e-3  # seconds of a request in the server
NETWORK = 3e-4  # seconds of a request on its way
LATE = 5e-5  # seconds by which the client sends late
WARM_UP = 0.1  # share of a level's duration that is in no figure
P99 = Goal(metric="latency", fraction=0.99, limit=0.1, text="p99<100ms")


def poisson(rate, count, seed=0):
    """Return the times of requests that arrive independently."""
    generator, clock, times = random.Random(seed), 0.0, []
    for _ in range(count):
        clock += generator.expovariate(rate)
        times.append(clock)
    return times


def answered(scheduled, services, *, workers=1, pause=(0.0, 0.0)):
    """Return when each request is answered; `pause` is when no worker works: begin and length."""
    free, ends = [0.0] * workers, []
    for due, service in zip(scheduled, services, strict=True):
        begin = max(due + LATE + NETWORK / 2, heapq.heappop(free))
        if pause[0] <= begin < pause[0] + pause[1]:
            begin = pause[0] + pause[1]
        heapq.heappush(free, begin + service)
        ends.append(begin + service + NETWORK / 2)
    return ends


def requests(scheduled, ends, *, wait=LATE, **columns):
    """Return the columns of requests that were all answered with status 200."""
    count = len(scheduled)
    known = {
        "scheduled": scheduled,
        "sent": [due + wait for due in scheduled],
        "first": [end - NETWORK / 4 for end in ends],
        "last": ends,
        "fate": ["done"] * count,
        "status": [200] * count,
        "item": [index % 4 for index in range(count)],
    }
    return Requests(**{name: tuple(column) for name, column in {**known, **columns}.items()})


def with_fates(all_requests, fates):
    """Return requests of which those at the keys of `fates` ended so, without an answer."""
    columns = {name: list(getattr(all_requests, name)) for name in ("first", "last", "status")}
    fate = list(all_requests.fate)
    for index, name in fates.items():
        fate[index] = name
        columns["first"][index] = columns["last"][index] = None
        columns["status"][index] = 503 if name == "status" else None
    return msgspec.structs.replace(
        all_requests, fate=tuple(fate), **{name: tuple(c) for name, c in columns.items()}
    )


def distribution(values, correlation=2.0):
    """Return the distribution of some times; None without any."""
    ordered, count = sorted(values), len(values)
    if not ordered:
        return None
    mean = math.fsum(ordered) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / count)
    independent = count / correlation
    half = 1.96 * spread / math.sqrt(independent)
    return Distribution(
        count=count, low=ordered[0], high=ordered[-1], correlation=correlation,
        mean=Estimate(value=mean, interval=Interval(low=mean - half, high=mean + half)),
        percentiles=tuple(
            _percentile(ordered, fraction, independent)
            for fraction in (0.5, 0.9, 0.95, 0.99)
            if count * (1 - fraction) >= 2
        ),
    )  # fmt: skip


def _percentile(ordered, fraction, independent):
    count = len(ordered)
    value = ordered[math.ceil(fraction * count) - 1]
    half = 1.96 * math.sqrt(fraction * (1 - fraction) / independent)
    if fraction + half >= 1 - 1 / independent:
        needed = math.ceil(count * 4 * fraction / (1 - fraction) / independent)
        reason = "Too few requests for an interval: they resemble their neighbours."
        return Percentile(fraction=fraction, value=value, reason=reason, needed=needed)
    low, high = (ordered[math.floor(share * count)] for share in (fraction - half, fraction + half))
    return Percentile(fraction=fraction, value=value, interval=Interval(low=low, high=high))


def rate_of(count, seconds):
    """Return so many a second, with the interval of independent events."""
    half = 1.96 * math.sqrt(count)
    interval = Interval(low=max(0.0, count - half) / seconds, high=(count + half) / seconds)
    return Estimate(value=count / seconds, interval=interval)


def use(duration, share, *, cores=4.0, first_saturated=""):
    """Return what a server used that computes in this share of the time."""
    times = tuple(duration * (step + 1) / 20 for step in range(20))
    wave = [1 + 0.05 * math.sin(step) for step in range(20)]
    return ServerUse(
        processes=2, cores=cores, time=times, cpu=tuple(cores * share * part for part in wave),
        memory=tuple(420_000_000 + 1_000_000 * step for step in range(20)),
        read=(0.0,) * 20, written=(1_200.0,) * 20, sent=(48_000.0,) * 20,
        received=(160_000.0,) * 20, waiting=tuple(0.02 * share * part for part in wave),
        first_saturated=first_saturated,
    )  # fmt: skip


def judged(goal, distribution_of):
    """Return whether a percentile of a distribution met a goal."""
    shown = None if distribution_of is None else distribution_of.percentile(goal.fraction)
    if shown is None:
        return GoalResult(goal=goal, verdict="unclear", reason="Too few requests show it.")
    low, high = (shown.value,) * 2
    if shown.interval is not None:
        low, high = shown.interval.low, shown.interval.high
    verdict = "met" if high < goal.limit else "missed" if low > goal.limit else "unclear"
    return GoalResult(
        goal=goal, verdict=verdict, value=shown.value, interval=shown.interval, reason=shown.reason
    )


def level(
    all_requests, arrivals, duration, *, goals=(P99,), results=(), correlation=2.0, **changes
):
    """Return the level of some requests; figures are of those after warm-up.

    `goals` are judged if they are of latency, those of others are in `results`.
    """
    begin = WARM_UP * duration
    window = duration - begin
    chosen = [i for i, due in enumerate(all_requests.scheduled) if begin <= due < duration]
    done = [i for i in chosen if all_requests.fate[i] == "done"]
    fates = {}
    for index in chosen:
        fate = all_requests.fate[index]
        fates[fate] = fates.get(fate, 0) + 1
    due, sent, last = all_requests.scheduled, all_requests.sent, all_requests.last
    latencies = {index: last[index] - due[index] for index in done}
    latency = distribution(list(latencies.values()), correlation)
    answered = sum(end is not None and begin <= end <= duration for end in last)
    within = sum(
        last[i] <= duration
        and all(goal.metric != "latency" or latencies[i] <= goal.limit for goal in goals)
        for i in done
    )
    failed = 1 - len(done) / len(chosen)
    known = {
        "arrivals": arrivals, "duration": duration, "window": (begin, duration),
        "requests": all_requests, "count": len(chosen), "fates": fates,
        "offered": None if arrivals.rate is None else len(chosen) / window,
        "completed": rate_of(min(answered, len(chosen)), window),
        "goodput": rate_of(within, window) if goals else None,
        "errors": Estimate(value=failed, interval=Interval(low=failed, high=failed + 0.005)),
        "latency": latency,
        "service": distribution([last[i] - sent[i] for i in done], correlation),
        "wait": distribution([sent[i] - due[i] for i in done], correlation),
        "saturation": Saturation(
            saturated=False, slope=0.01, interval=Interval(low=-0.2, high=0.22), backlog=1
        ),
        "client": ClientLoad(
            connections=6, lateness=5e-5, lateness_p99=9e-5, lateness_max=4e-4, cpu=5.2e-5,
            waiting=0.004,
        ),
        "goals": (
            *(judged(goal, latency) for goal in goals if goal.metric == "latency"), *results,
        ),
    }  # fmt: skip
    return Level(**{**known, **changes})


def open_level(rate, count=400, *, seed=0, workers=1, pause=(0.0, 0.0), wait=LATE, **changes):
    """Return a level of Poisson arrivals at a server that takes 8 ms a request."""
    scheduled = poisson(rate, count, seed)
    ends = answered(scheduled, [SERVICE] * count, workers=workers, pause=pause)
    all_requests = requests(
        scheduled, ends, wait=wait, batch=[1] * count, service=[SERVICE] * count
    )
    arrivals = Arrivals(kind="poisson", rate=float(rate), seed=seed)
    duration = math.nextafter(scheduled[-1], math.inf)  # the last is in the window
    load = min(1.0, rate * SERVICE / workers)
    known = {"server": use(duration, load), "correlation": max(1.0, 1 / (1.05 - load))}
    return level(all_requests, arrivals, duration, **{**known, **changes})


def closed_level(scenario="single-stream", count=200, **changes):
    """Return a level of one user who sends the next request when the last is answered."""
    scheduled, clock, ends = [], 0.0, []
    for index in range(count):
        scheduled.append(clock)
        clock += SERVICE * (1 + 0.02 * (index % 5))
        ends.append(clock)
    all_requests = requests(scheduled, ends, wait=0.0)
    arrivals = Arrivals(kind="at once" if scenario == "offline" else "closed", users=1)
    known = {
        "scenario": scenario,
        "saturation": None,
        "wait": None,
        "goals": (),
        "correlation": 1.0,
    }
    return level(all_requests, arrivals, clock, **{**known, **changes})
