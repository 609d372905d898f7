"""Servers that are known in full, to plan for and to hold plans to."""

import heapq
import itertools
import math
import random

import msgspec
import numpy as np
from tests.support import servings
from tests.support.serving_levels import requests

from torchgauge.analyze.capacity.simulation import Workers, at_random, drawn, simulate
from torchgauge.records.serving.capacity_plan import BatchTimes, ServiceTimes, TokenTimes
from torchgauge.records.serving.level import Arrivals, Level
from torchgauge.records.serving.requests import Goal
from torchgauge.records.serving.serving import ServedBy

FIXED, PER_REQUEST = 4e-3, 2e-3
P99 = Goal(metric="latency", fraction=0.99, limit=0.05, text="p99<50ms")
SETTINGS = (Workers(1, 8, 5e-3), Workers(2, 4, 2e-3), Workers(1), Workers(3, 2, 0.0))


def batch_seconds(size, count, generator, spread=0.05):
    """Return the seconds of batches: 4 ms + 2 ms a request, of which some take longer."""
    return (FIXED + PER_REQUEST * size) * generator.lognormal(-(spread**2) / 2, spread, count)


def measured(sizes=(1, 2, 4, 8), count=1000, seed=0, spread=0.05, **changes):
    """Return service times as a measurement of so many batches of each size shows them."""
    generator = np.random.default_rng(seed)
    batches = tuple(
        BatchTimes(batch=size, seconds=tuple(batch_seconds(size, count, generator, spread)))
        for size in sizes
    )
    known = {"source": "server", "batches": batches, "max_batch": max(sizes), "max_delay": 5e-3}
    return ServiceTimes(**{**known, **changes})


def exact(sizes=(1, 2, 4, 8), **changes):
    """Return service times without any scatter."""
    batches = tuple(
        BatchTimes(batch=size, seconds=(FIXED + PER_REQUEST * size,) * 50) for size in sizes
    )
    known = {"source": "server", "batches": batches, "max_batch": max(sizes), "max_delay": 0.0}
    return ServiceTimes(**{**known, **changes})


def highest_rate(workers):
    return workers.count * workers.max_batch / (FIXED + PER_REQUEST * workers.max_batch)


def true_latencies(workers, load, count, seed, spread=0.05):
    """Return what requests wait in a world of its own seed, after it has filled."""
    generator = np.random.default_rng(seed)
    arrivals = np.cumsum(generator.exponential(1 / (load * highest_rate(workers)), count))
    services = [
        drawn(np.sort(batch_seconds(size, 50_000, generator, spread)), at_random(generator))
        for size in range(1, workers.max_batch + 1)
    ]
    return (simulate(arrivals, services, workers).ends - arrivals)[count // 20 :]


def tokens(memory=None):
    """Return a language model: 10 ms + 0.1 ms a token of a prompt; 5 ms + 1 ms a sequence."""
    prefill = TokenTimes(
        stage="prefill", fixed=0.01, per_token=1e-4, per_pair=0.0, noise=0.02, memory=memory
    )
    decode = TokenTimes(
        stage="decode", fixed=5e-3, per_token=1e-3, per_pair=0.0, noise=0.02, cache=100.0,
        memory=memory,
    )  # fmt: skip
    return ServiceTimes(
        source="generation", tokens=(prefill, decode), max_batch=8, shapes=((100, 11),),
        how="estimated",
    )  # fmt: skip


def load_record(order, rate, *, workers=1, count=3000, seed=0, room=None, jitter=3e-4):
    """Return a record of load on a server that takes requests one by one, in `order`.

    "fifo", "lifo", or "two queues": one for each worker, which requests choose at random. `room` is
    how many may wait before requests are turned away.
    """
    draw = random.Random(seed)
    clock, due = 0.0, []
    for _ in range(count):
        clock += draw.expovariate(rate)
        due.append(clock)
    took = [0.01 * draw.lognormvariate(0, 0.1) for _ in due]
    queues = workers if order == "two queues" else 1
    ends = [None] * count
    for queue in range(queues):
        chosen = [number for number in range(count) if draw.random() < 1 / (queues - queue)
                  and ends[number] is None] if queues > 1 else list(range(count))  # fmt: skip
        _serve(order, chosen, due, took, ends, 1 if queues > 1 else workers, room)
        if queues > 1 and queue < queues - 1:
            for number in set(range(count)) - set(chosen):
                ends[number] = None
    shed = [number for number, end in enumerate(ends) if end is None]
    last = [None if end is None else end + draw.uniform(0, jitter) for end in ends]
    made = requests(
        due, [0.0 if end is None else end for end in last],
        service=took, batch=[1] * count, last=last, first=last,
        fate=["status" if end is None else "done" for end in last],
    )  # fmt: skip
    fates = {"done": count - len(shed)} | ({"status": len(shed)} if shed else {})
    shown = Level(
        arrivals=Arrivals(kind="poisson", rate=float(rate)), duration=due[-1],
        window=(0.0, due[-1]), requests=made, count=count, fates=fates,
    )  # fmt: skip
    times = ServiceTimes(
        source="server", batches=(BatchTimes(batch=1, seconds=tuple(took)),), max_batch=1,
        workers=workers,
    )  # fmt: skip
    return servings.serving([shown], service_times=times)


def batching_record(*rates, delay, collects, count=3000, **served):
    """Return a record of load on an endpoint that batches 8 and names its batches.

    A batch of b takes 4 + 2 b ms, and each request 1 ms beside it. `delay` begins when the free
    worker takes the first request (`collects`), or when that came.
    """
    levels = []
    for seed, rate in enumerate(rates):
        draw = random.Random(seed)
        due = list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))
        free, columns = 0.0, {"last": [], "batch": [], "service": []}
        while len(columns["last"]) < count:
            waiting = due[len(columns["last"]) :][:8]
            begin = (max(waiting[0], free) if collects else waiting[0]) + delay
            begin = max(free, min(begin, waiting[7] if len(waiting) == 8 else math.inf))
            size = sum(moment <= begin for moment in waiting)
            seconds = (FIXED + PER_REQUEST * size) * draw.lognormvariate(0, 0.02)
            free = begin + seconds
            columns["last"] += [free + 1e-3] * size
            columns["batch"] += [size] * size
            columns["service"] += [seconds] * size
        made = requests(due, columns["last"], sent=due, first=columns["last"], **columns)
        levels.append(Level(
            arrivals=Arrivals(kind="poisson", rate=float(rate)), duration=due[-1],
            window=(0.0, due[-1]), requests=made, count=count, fates={"done": count},
        ))  # fmt: skip
    return servings.serving(levels, served_by=ServedBy(kind="endpoint", **served))


def _serve(order, chosen, due, took, ends, workers, room):
    """Fill in when the chosen requests are answered; None stays of those turned away."""
    free, waiting, following = [0.0] * workers, [], 0
    while following < len(chosen) or waiting:
        begin = heapq.heappop(free)
        if not waiting:
            begin = max(begin, due[chosen[following]])
        while following < len(chosen) and due[chosen[following]] <= begin:
            if room is None or len(waiting) < room:
                waiting.append(chosen[following])
            following += 1
        if not waiting:
            heapq.heappush(free, begin)
            continue
        number = waiting.pop() if order == "lifo" else waiting.pop(0)
        ends[number] = begin + took[number]
        heapq.heappush(free, ends[number])


def untold(*records, served_by=None):
    """Return the levels of records of load as one, of an endpoint that tells no service times."""
    bare = {"batch": (), "service": ()}
    levels = [
        msgspec.structs.replace(level, requests=msgspec.structs.replace(level.requests, **bare))
        for record in records
        for level in record.levels
    ]
    served_by = served_by or ServedBy(kind="endpoint")
    return servings.serving(levels, served_by=served_by, service_times=None)


def unlimited_record(rate, count=400, seconds=0.01):
    """Return a record of load on a server in which no request waits for another."""
    draw = random.Random(0)
    due = list(itertools.accumulate(draw.expovariate(rate) for _ in range(count)))
    last = [moment + seconds for moment in due]
    level = Level(
        arrivals=Arrivals(kind="poisson", rate=float(rate)), duration=due[-1],
        window=(0.0, due[-1]), requests=requests(due, last, sent=due, first=last), count=count,
        fates={"done": count},
    )  # fmt: skip
    return servings.serving([level])
