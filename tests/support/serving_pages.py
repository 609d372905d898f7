"""Records of serving and capacity made by hand for tests of the page: long runs, stalls, plans."""

import functools
import math
import random

import msgspec
from tests.support import records, servings
from tests.support.serving_levels import SERVICE, distribution, open_level, with_fates

from torchgauge.records.finding import Finding
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.capacity_plan import (
    BatchTimes,
    CapacityPlan,
    Check,
    PlannedSetting,
    ServiceTimes,
    TokenTimes,
)
from torchgauge.records.serving.level import Arrivals
from torchgauge.records.serving.requests import Distribution, Estimate, Goal, GoalResult, Percentile

GOAL = Goal(metric="latency", fraction=0.99, limit=0.1, text="p99<100ms")
RATE = 300.0
FATES = ("timeout", "refused", "reset", "status", "stream", "tls", "protocol", "unfinished")


@functools.cache
def long_run(count=300_000):
    """Return a level of very many requests with a pause, some of which failed."""
    whole = open_level(100, count, seed=1, pause=(0.4 * count / 100, 2.0))
    draw = random.Random(2)
    fates = {index: draw.choice(FATES[:3]) for index in draw.sample(range(count), count // 300)}
    level = msgspec.structs.replace(whole, requests=with_fates(whole.requests, fates))
    return servings.serving([level])


def every_fate(count=400):
    """Return two levels of which requests ended in more ways than a bar has room for."""
    whole = open_level(50, count, seed=3)
    fates = {20 * index + 50: fate for index, fate in enumerate(FATES)}
    level = msgspec.structs.replace(whole, requests=with_fates(whole.requests, fates))
    return servings.serving([level, level])


def stalled(count=120):
    """Return a stream's endpoint at two rates; at the second a third of the streams stalls."""
    record = servings.streamed(count)
    second = record.levels[1]
    requests = second.requests
    gaps, last, at = list(requests.gaps), list(requests.last), 0
    for index, chunks in enumerate(requests.chunks):
        if index % 3 == 0:
            gaps[at + 4] += 1.5
            last[index] += 1.5
        at += chunks - 1
    changed = msgspec.structs.replace(requests, gaps=tuple(gaps), last=tuple(last))
    itl = distribution(gaps[len(gaps) // 10 :], 8.0)
    level = msgspec.structs.replace(second, requests=changed, itl=itl, tpot=None)
    return msgspec.structs.replace(record, levels=(record.levels[0], level))


def estimate(value, spread=0.04):
    """Return an estimated value whose interval has this half width, relative."""
    return Estimate(
        value=value,
        interval=Interval(low=value * (1 - spread), high=value * (1 + spread)),
        how="estimated",
    )


def predicted(load, service=SERVICE):
    """Return the distribution of a wait that grows without end as the load nears 1."""
    mean = service * (1 + load / (2 * (1 - load)))
    percentiles = []
    for fraction in (0.5, 0.9, 0.95, 0.99):
        value = service + (mean - service) * -math.log(1 - fraction)
        ends = Interval(low=value * (0.97 - 0.1 * load**8), high=value * (1.03 + 0.1 * load**8))
        percentiles.append(
            Percentile(fraction=fraction, value=value, interval=ends, how="estimated")
        )
    return Distribution(
        count=100_000, mean=estimate(mean), low=service, high=30 * mean,
        percentiles=tuple(percentiles),
    )  # fmt: skip


def setting(workers, rate=RATE, batch=4, delay=0.005, **changes):
    """Return a setting whose workers each answer `batch` requests in so many service times."""
    capacity = workers * batch / (SERVICE * (1 + 0.25 * (batch - 1)))
    load = rate / capacity
    latency = predicted(load) if load < 1 else None
    highest = None if latency is None else latency.percentile(0.99)
    met = highest is not None and highest.value < GOAL.limit
    result = GoalResult(
        goal=GOAL, verdict="met" if met else "missed", value=highest and highest.value
    )
    known = {
        "workers": workers, "max_batch": batch, "max_delay": delay, "rate": rate,
        "latency": latency, "utilization": min(load, 1.0), "mean_batch": 1 + (batch - 1) * load,
        "goals": (result,), "knee": estimate(0.93 * capacity), "price": 0.5 * workers,
        "price_per_million": 0.5 * workers / rate / 3600 * 1e6,
    }  # fmt: skip
    return PlannedSetting(**{**known, **changes})


def service_times():
    """Return the service times of batches up to eight, each measured so many times."""
    draw = random.Random(5)
    batches = [
        BatchTimes(batch=size, seconds=tuple(
            SERVICE * (1 + 0.25 * (size - 1)) * draw.lognormvariate(0, 0.06)
            for _ in range(600 if size == 1 else 90)))
        for size in (1, 2, 3, 4, 6, 8)
    ]  # fmt: skip
    return ServiceTimes(source="server", batches=tuple(batches), overhead=3e-4, max_batch=8)


def plan(**changes):
    """Return a plan for 300 requests/s: one worker is too few, two meet the goal."""
    settings = [setting(workers) for workers in (1, 2, 3, 4)]
    front = [
        setting(workers, 100.0, batch, delay)
        for workers in (1, 2, 3)
        for batch, delay in ((1, 0.0), (4, 0.005), (8, 0.01))
        if 0.9 * workers * batch / (SERVICE * (1 + 0.25 * (batch - 1))) > 100.0
    ]
    known = {
        "target": servings.target(), "environment": records.environment(),
        "times": service_times(), "discipline": "batches",
        "arrivals": Arrivals(kind="poisson", rate=RATE), "goals": (GOAL,), "needed": settings[1],
        "settings": tuple(settings), "failure": settings[0], "front": tuple(front),
        "checks": (
            Check(figure="latency p50", rate=250.0, predicted=estimate(0.0105),
                  measured=estimate(0.0107, 0.02), inside=True),
            Check(figure="latency p99", rate=250.0, predicted=estimate(0.031),
                  measured=estimate(0.0391, 0.06), inside=False),
            Check(figure="TTFT p50", rate=300.0, predicted=Estimate(value=0.531),
                  measured=Estimate(value=0.540)),
        ),
        "findings": (
            Finding(id="single-worker-lost", severity="warning",
                    title="A lost worker leaves too few",
                    evidence="One worker answers 229 requests/s; 300 are due.",
                    remedy="Plan with `--headroom failure:1`."),
        ),
        "warnings": (
            MeasurementWarning(id="short-calibration", message="Of 90 batches each at most."),
        ),
    }  # fmt: skip
    return CapacityPlan(**{**known, **changes})


def token_plan():
    """Return a plan of a language model, by continuous batching; no setting meets the goal."""
    tokens = (
        TokenTimes(stage="prefill", fixed=0.02, per_token=2e-4, per_pair=1e-8, noise=0.04),
        TokenTimes(stage="decode", fixed=0.03, per_token=3e-4, per_pair=2e-9, noise=0.02),
    )
    settings = tuple(
        setting(workers, 8.0, 32, 0.0, ttft=predicted(0.5, 0.2), tpot=predicted(0.3, 0.03))
        for workers in (1, 2)
    )
    return plan(
        times=ServiceTimes(source="generation", tokens=tokens, how="estimated"), checks=(),
        discipline="continuous", settings=settings, needed=None, failure=None, front=(),
    )  # fmt: skip


def refused_plan():
    """Return a plan of a server whose order of answers is not that of arrival."""
    return plan(
        refused="the answers come in another order than the requests (last in, first out).",
        needed=None, settings=(), failure=None, front=(), checks=(), findings=(),
    )  # fmt: skip


def every():
    """Return the records of the page by name."""
    made = (plan, token_plan, refused_plan, every_fate, stalled)
    pages = {function.__name__: function() for function in made}
    return {**servings.every(), **pages}
