"""Simulate requests that wait in one queue for workers, which take them in batches."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.records.serving.capacity_plan import Queues, ServiceTimes

Floats = npt.NDArray[np.float64]

# Service times that are drawn at once.
CHUNK = 4096


@dataclasses.dataclass(frozen=True)
class Workers:
    """Workers behind one queue.

    Attributes:
        count: How many.
        max_batch: Requests that a worker computes at once at most.
        max_delay: Seconds that the oldest request waits for a batch to fill at most.
        collects: Whether these begin when a free worker takes it, else when it came.
        at_once: Requests or batches that each computes at once, as fast as one alone.
    """

    count: int = 1
    max_batch: int = 1
    max_delay: float = 0.0
    collects: bool = False
    at_once: int = 1

    @property
    def places(self) -> int:
        """Requests or batches that all compute at once."""
        return self.count * self.at_once

    @classmethod
    def of_times(cls, times: ServiceTimes) -> Workers:
        """Return the workers of which these are the service times."""
        return cls(
            times.workers, times.max_batch or 1, times.max_delay or 0.0, times.collects,
            times.at_once,
        )  # fmt: skip


class Served(NamedTuple):
    """What came of a schedule.

    Attributes:
        ends: When each request was answered, in the order of the schedule.
        busy: Seconds that the workers computed, in all.
        batches: How many batches they computed.
    """

    ends: Floats
    busy: float
    batches: int


def simulate(arrivals: Floats, services: Sequence[Iterator[float]], workers: Workers) -> Served:
    """Return when requests are answered that arrive at these seconds, in ascending order.

    A free worker starts a batch as soon as `max_batch` requests wait or the oldest has waited
    `max_delay`, and takes requests in their order. `services[n - 1]` yields the seconds of batches
    of n requests.
    """
    if workers.max_batch == workers.places == 1:
        return _lindley(arrivals, services[0])
    # A worker with nothing else to wait for starts at once: no delay fills a batch of one.
    delay = workers.max_delay if workers.max_batch > 1 else 0.0
    count, max_batch, collects = len(arrivals), workers.max_batch, workers.collects
    times = arrivals.tolist()
    draws = [None, *(service.__next__ for service in services)]
    free = [0.0] * workers.places
    sizes: list[int] = []
    ends: list[float] = []
    busy, index = 0.0, 0
    while index < count:
        start = times[index] + delay
        if collects and free[0] > times[index]:
            start = free[0] + delay
        stop = index + max_batch
        if stop > count:
            stop = count
        elif times[stop - 1] < start:
            start = times[stop - 1]
        if free[0] > start:
            start = free[0]
        after = index + 1
        while after < stop and times[after] <= start:
            after += 1
        size = after - index
        seconds = draws[size]()  # type: ignore[misc]
        end = start + seconds
        heapq.heapreplace(free, end)
        busy += seconds
        sizes.append(size)
        ends.append(end)
        index = after
    return Served(np.repeat(ends, sizes), busy, len(sizes))


def simulate_queues(
    arrivals: Floats,
    services: Sequence[Iterator[float]],
    workers: Workers,
    queues: Queues,
    seed: int,
) -> Served:
    """Return the same of workers with these queues; bound ones that batch are taken as random."""
    if queues == "one" or workers.count == 1:
        return simulate(arrivals, services, workers)
    if queues != "random" and workers.max_batch == 1:
        return _bound(arrivals, services[0], workers)
    owners = np.random.default_rng((seed, 0)).integers(workers.count, size=len(arrivals))
    order = np.argsort(owners, kind="stable")
    ends, busy, batches = np.empty(len(arrivals)), 0.0, 0
    for rows in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
        served = simulate(arrivals[rows], services, dataclasses.replace(workers, count=1))
        ends[rows] = served.ends
        busy, batches = busy + served.busy, batches + served.batches
    return Served(ends, busy, batches)


def _bound(arrivals: Floats, service: Iterator[float], workers: Workers) -> Served:
    """Return the same of workers without batches to which connections are bound.

    A request takes the connection that was idle last, as a client's pool does, and waits behind
    those of its worker. If none is idle a new one is opened, which the least busy worker accepts.
    """
    free = [[0.0] * workers.at_once for _ in range(workers.count)]
    idle: list[int] = []
    in_flight: list[tuple[float, int]] = []
    ends: list[float] = []
    busy = 0.0
    for due, seconds in zip(arrivals.tolist(), service, strict=False):
        while in_flight and in_flight[0][0] <= due:
            idle.append(heapq.heappop(in_flight)[1])
        owner = idle.pop() if idle else min(range(workers.count), key=lambda n: free[n][0])
        end = max(due, free[owner][0]) + seconds
        heapq.heapreplace(free[owner], end)
        heapq.heappush(in_flight, (end, owner))
        ends.append(end)
        busy += seconds
    return Served(np.array(ends), busy, len(ends))


def _lindley(arrivals: Floats, service: Iterator[float]) -> Served:
    """Return the same of one worker without batches: the latest of all the ways to wait."""
    seconds = np.fromiter(service, np.float64, len(arrivals))
    total = np.cumsum(seconds)
    ends = total + np.maximum.accumulate(arrivals - (total - seconds))
    return Served(ends, float(total[-1]) if len(total) else 0.0, len(arrivals))


def at_random(generator: np.random.Generator) -> Iterator[Floats]:
    """Yield ranks from 0 to 1 without end, each independent of the others."""
    while True:
        yield generator.random(CHUNK)


def drawn(values: Floats, ranks: Iterator[Floats]) -> Iterator[float]:
    """Yield the values at these ranks; sorted ones are drawn alike from alike samples."""
    for part in ranks:
        yield from values[(part * len(values)).astype(np.int64)].tolist()


def highest_rate(means: Sequence[float], workers: Workers) -> float:
    """Return the rate from which on the queue grows without end: all batches are full then.

    `means[n - 1]` are the mean seconds of batches of n requests.
    """
    seconds = means[workers.max_batch - 1]
    return workers.places * workers.max_batch / seconds if seconds > 0 else math.inf
