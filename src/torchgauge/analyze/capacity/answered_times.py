"""Service times of a server that tells none, from when it answered the requests of a load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from torchgauge import units
from torchgauge.analyze.capacity.server_model import FAR_OF_PLAN, known_columns, met_idle, unlike
from torchgauge.analyze.capacity.simulation import Floats
from torchgauge.errors import InputError
from torchgauge.records.serving.capacity_plan import BatchTimes, Check, Queues, ServiceTimes
from torchgauge.records.serving.serving import Serving

# Of requests that met the server idle, and of batches that waited: fewer show no service time.
FEWEST_ALONE, FEWEST_BATCHES = 20, 50
# A median so many times as long as alone shows that requests waited, and what is answered at most.
WAITED = 1.5
# A server is taken to slow down by so much when it is busy, as its threads share cores.
SLOWER = 1.25
MOST_AT_ONCE = 1000
# Of the time that a request takes alone: answers that are nearer to each other are of one batch,
# and a request that waited less may not have waited.
NEAR = 0.25
# Of the time that a request takes alone: a delay that shows.
FILLS = 0.1
# Share of the batches that have several requests, where a server batches.
SEVERAL = 0.1
# By how much simulations of the levels may be off on average, and by how much more those of another
# kind of queues that the levels do not tell from it.
MOST_ERROR, SAME_WITHIN = 0.15, 0.05


class Answers(NamedTuple):
    """When the answered requests of a level were sent, in that order, and answered."""

    sent: Floats
    last: Floats

    def busy_rate(self, count: int) -> float:
        """Return the answers per second while `count` requests or more are in the server."""
        moments = np.concatenate((self.sent, self.last))
        steps = np.repeat((1, -1), len(self.sent))
        order = np.argsort(moments, kind="stable")
        is_busy = np.cumsum(steps[order])[:-1] >= count
        seconds = float(np.diff(moments[order])[is_busy].sum())
        return int((steps[order][1:] < 0)[is_busy].sum()) / seconds if seconds else 0.0

    def batches(self, near: float) -> Iterator[tuple[int, float]]:
        """Yield sizes of batches that waited, answered `near` together, and their seconds."""
        order = np.argsort(self.last, kind="stable")
        cuts = np.flatnonzero(np.diff(self.last[order]) > near) + 1
        before = -math.inf
        for members in np.split(order, cuts):
            end, first = float(np.median(self.last[members])), float(self.sent[members].min())
            if before - first > near:
                yield len(members), end - before
            before = end


def inferred_times(serving: Serving, max_delay: float | None = None) -> Iterator[ServiceTimes]:
    """Yield the service times of a load whose server tells none, for several kinds of servers.

    What a request takes that meets the server idle is its service and what is outside. A busy one
    that takes k at once answers k in a service. Answers that come together are a batch.

    Raises InputError `no-service-times` where no request was alone, or none waited.
    """
    levels = [x for x in serving.levels if x.client is None or not x.client.limited]
    answers = [Answers(*known_columns(level.requests, "sent", "last")) for level in levels]
    answers = [part for part in answers if len(part.sent)]
    if not answers:
        raise _missing("No request was answered by a client that was in time", "a lower rate")
    idle_latencies = np.concatenate([(p.last - p.sent)[met_idle(*p)] for p in answers])
    if idle_latencies.size < FEWEST_ALONE:
        text = (
            f"{idle_latencies.size} requests met the server idle, at {len(answers)} levels in time"
        )
        raise _missing(text, "a low rate")
    usual = float(idle_latencies.mean())
    waited = [part for part in answers if np.median(part.last - part.sent) > WAITED * usual]
    if not waited:
        raise _missing("No level let requests wait", "a rate near or above what it answers")
    workers = serving.served_by.workers or 1
    rate = max(part.busy_rate(1) for part in waited)
    if usual * rate * SLOWER < workers:
        text = f"{rate:,.3g} requests/s that wait are fewer than with {units.time(usual, 3)} each"
        raise _missing(f"{text}: they slow each other down", "a rate that it answers")
    yield from _one_by_one(waited, idle_latencies, workers)
    if workers == 1:
        yield from _in_batches(answers, idle_latencies, max_delay)


def _one_by_one(
    waited: Sequence[Answers], idle_latencies: Floats, workers: int
) -> Iterator[ServiceTimes]:
    """Yield the times of workers that take as many at once as their rate says, or one."""
    usual = float(idle_latencies.mean())
    kinds: tuple[Queues, ...] = ("one", "bound", "random") if workers > 1 else ("unknown",)
    places = min(usual * max(part.busy_rate(1) for part in waited) / workers, MOST_AT_ONCE)
    for count in sorted({1, math.floor(places), math.ceil(places)} - {0}):
        rate = max(part.busy_rate(count * workers) for part in waited)
        if count * workers > SLOWER * usual * rate:
            continue
        seconds = count * workers / rate
        outside = max(0.0, usual - seconds)
        services = np.maximum(idle_latencies - outside, 0.0)
        services *= seconds / services.mean()
        batches = (BatchTimes(batch=1, seconds=tuple(services.tolist())),)
        for queues in kinds:
            yield ServiceTimes(
                source="answers", batches=batches, overhead=outside, max_batch=1, at_once=count,
                workers=workers, queues=queues,
            )  # fmt: skip


def distance(all_checks: Sequence[Check]) -> float:
    """Return by how much predictions are off, as the sum of logarithms of ratios."""
    ratios = (check.measured.value / check.predicted.value for check in all_checks)
    return sum(abs(math.log(ratio)) for ratio in ratios if ratio > 0)


def judge_inferred(
    attempts: Sequence[tuple[ServiceTimes, tuple[Check, ...], str]],
) -> tuple[ServiceTimes, str]:
    """Return the times that are nearest to the levels, with their error, and why they do not fit.

    An attempt is times, the levels simulated with them, and what contradicts them. Kinds of queues
    that are as near are all possible.
    """
    times, checks, reason = min(attempts, key=lambda attempt: distance(attempt[1]))
    if not checks:
        return times, reason or "No level of 100 answers without a growing queue shows its kind."
    errors = [(way.queues, distance(of_way) / len(checks)) for way, of_way, _ in attempts]
    error = min(error for _, error in errors)
    near = {queues for queues, other in errors if other <= error + SAME_WITHIN}
    queues = times.queues
    if len(near) > 1:
        queues = "unknown" if "one" in near else "random"
    reason = reason or unlike(checks, FAR_OF_PLAN)
    if error > MOST_ERROR:
        share = units.percent(error)
        reason = reason or f"Its answers fit no server that is simulated: they are off by {share}."
    return replace(times, error=error, queues=queues), reason


def _missing(reason: str, needed: str) -> InputError:
    return InputError(
        "The load does not show what this server takes for a request.",
        id="no-service-times",
        cause=f"{reason}, and it does not say how long it computes.",
        remedy=f"Load it with {needed} too (--rate 5,50,500), or give a record of "
        "torchgauge sweep TARGET --batch 1,2,4,8 -o sweep.json",
    )


def _in_batches(
    answers: Sequence[Answers], idle_latencies: Floats, max_delay: float | None
) -> Iterator[ServiceTimes]:
    """Yield the times of a worker that batches; none where answers do not come together.

    Where all but the largest batches took longer than those by as much, it waits that long for
    them to fill, once it is free. Else it may wait while others compute, or not at all.
    """
    usual = float(idle_latencies.mean())
    parts = [part.batches(NEAR * usual) for part in answers]
    sizes, seconds = np.array(list(itertools.chain(*parts)), dtype=np.float64).reshape(-1, 2).T
    largest = int(sizes.max(initial=1))
    smaller = sizes < largest
    if len(sizes) < FEWEST_BATCHES or (sizes > 1).mean() < SEVERAL or not smaller.any():
        return
    slope, begin = 0.0, float(seconds.min())
    if len(set(sizes[smaller])) > 1:
        slope, begin = np.polyfit(sizes[smaller], seconds[smaller], 1).tolist()
    outside = max(0.0, usual - max(begin + slope, float(seconds.min())))
    fills = begin + slope * largest - float(np.median(seconds[~smaller]))
    ways = [(0.0, False), (outside, False)] + [(fills, True)] * (fills > FILLS * usual)
    if max_delay is not None:
        ways = [(max_delay, False), (max_delay, True)]
    for delay, collects in ways:
        took = np.maximum(seconds - delay * smaller * collects, 0.0)
        by_size = {int(size): took[sizes == size] for size in sorted({1.0, *sizes})}
        by_size[1] = np.maximum(idle_latencies - outside - delay * collects, 0.0)
        yield ServiceTimes(
            source="answers", max_batch=largest, max_delay=delay, collects=collects,
            overhead=max(0.0, outside - delay * (not collects)), queues="unknown",
            batches=tuple(
                BatchTimes(batch=size, seconds=tuple(values.tolist()))
                for size, values in by_size.items()
            ),
        )  # fmt: skip
