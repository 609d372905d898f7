"""Records of serving made by hand: a reference server, a language model's endpoint, scenarios."""

import functools
import math

from tests.support import records
from tests.support.serving_levels import (
    NETWORK,
    P99,
    SERVICE,
    closed_level,
    distribution,
    judged,
    level,
    open_level,
    poisson,
    rate_of,
    requests,
    use,
    with_fates,
)

from torchgauge.records.finding import Finding
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.serving.capacity_plan import BatchTimes, ServiceTimes
from torchgauge.records.serving.level import Arrivals, ClientLoad, EarlyStopping, Saturation
from torchgauge.records.serving.requests import Goal, GoalResult, Percentile
from torchgauge.records.serving.serving import Capacity, ServedBy, Serving
from torchgauge.records.target import TargetDescription

TTFT = Goal(metric="ttft", fraction=0.95, limit=0.3, text="ttft_p95<300ms")
ERRORS = Goal(metric="errors", limit=0.01, text="errors<1%")
ADDRESS = "http://127.0.0.1:8000/v1/chat/completions"
REFERENCE = ServedBy(
    kind="reference", api="torchgauge", address="http://127.0.0.1:40123/infer",
    software="torchgauge", max_batch=8, max_delay=0.005, workers=1,
)  # fmt: skip
ENDPOINT = ServedBy(kind="endpoint", api="openai-chat", address=ADDRESS, software="uvicorn")


def target(**changes):
    known = {"spec": "model.py:make", "kind": "python", "name": "Net", "device": "cpu",
             "precision": "fp32", "precision_method": "native"}  # fmt: skip
    return TargetDescription(**{**known, **changes})


def endpoint():
    """Return the description of an endpoint, of which its address is known and no more."""
    return target(
        spec=ADDRESS, kind="endpoint", name="127.0.0.1:8000", device="unknown", precision="native"
    )


def serving(levels, **changes):
    """Return a record of some levels at the reference server."""
    known = {
        "target": target(), "environment": records.environment(), "served_by": REFERENCE,
        "goals": (P99,), "levels": tuple(levels),
    }  # fmt: skip
    return Serving(**{**known, **changes})


def service_times():
    """Return how long the server computed batches of 1, 2 and 4 requests."""
    batches = [
        BatchTimes(batch=size, seconds=tuple(SERVICE * (1 + 0.25 * (size - 1)) * factor
                                             for factor in (0.99, 1.0, 1.01, 1.0)))
        for size in (1, 2, 4)
    ]  # fmt: skip
    return ServiceTimes(
        source="server", batches=tuple(batches), overhead=NETWORK, max_batch=8, max_delay=0.005
    )


@functools.cache
def healthy(count=400):
    """Return three levels, all within the goal: the capacity is above what was tried."""
    return serving(
        [open_level(rate, count, seed=rate) for rate in (25, 50, 75)],
        capacity=Capacity(
            rate=75.0, above_all_tried=True, reason="The highest rate that was tried met the goals."
        ),
        service_times=service_times(),
    )


def saturated_level(rate=150, count=400):
    """Return a level above the 125 requests/s that the server can answer."""
    slope = rate - 1 / SERVICE
    interval = Interval(low=0.9 * slope, high=1.1 * slope)
    backlog = round(slope * count / rate)
    return open_level(
        rate, count, seed=rate, correlation=60.0,
        server=use(count / rate, 1.0, first_saturated="cpu"),
        saturation=Saturation(saturated=True, slope=slope, interval=interval, backlog=backlog),
    )  # fmt: skip


@functools.cache
def capacity_found(count=400):
    """Return a search for the highest rate within the goal, which a second run confirmed."""
    levels = [open_level(rate, count, seed=rate) for rate in (25, 50, 100)]
    known = levels[2].latency.percentiles[-1].value
    controlled = Percentile(
        fraction=0.99, value=0.9 * known, interval=Interval(low=0.8 * known, high=known),
        how="estimated",
    )  # fmt: skip
    levels[2] = open_level(100, count, seed=100, controlled=controlled)
    return serving(
        [*levels, saturated_level(count=count)],
        capacity=Capacity(
            rate=104.0, interval=Interval(low=100.0, high=109.0), confirmed=True,
            searched=True, reason="6 levels around it show it to 4.3 %.",
        ),
        service_times=service_times(),
        findings=(
            Finding(
                id="saturated", severity="warning", title="Saturated at 150 requests/s",
                evidence="The backlog grew by 25 requests/s (22.5 … 27.5).",
                remedy="More workers, or larger batches.",
            ),
        ),
    )  # fmt: skip


def none_met(count=400):
    """Return a run of which no rate met the goals."""
    reason = "The lowest rate that was tried missed the goals."
    return serving([saturated_level(count=count)], capacity=Capacity(reason=reason))


def client_limited(count=400):
    """Return a level that the client was too slow for."""
    client = ClientLoad(
        processes=2, connections=64, lateness=2e-3, lateness_p99=31e-3, lateness_max=80e-3,
        cpu=4.1e-4, waiting=0.34, limited=True,
    )  # fmt: skip
    warning = MeasurementWarning(
        id="client-limited", message="The client sent 1 % of the requests 31 ms late or later."
    )
    finding = Finding(
        id="client-limited", severity="serious",
        title="The client was too slow for 100 requests/s: its figures are its own", evidence="",
    )  # fmt: skip
    levels = [open_level(100, count, seed=7, wait=2e-3, client=client, warnings=(warning,))]
    return serving(levels, findings=(finding,))


def with_errors(count=400):
    """Return a level of which some requests were refused, reset, answered by 503 or too slow."""
    fates = {60: "refused", 90: "reset", 120: "status", 150: "status", 200: "timeout"}
    arrivals = Arrivals(kind="gamma", rate=50.0, variation=2.0, seed=3)
    whole = open_level(50, count, seed=3)
    goals = (P99, ERRORS)
    share = len(fates) / whole.count
    missed = GoalResult(goal=ERRORS, verdict="missed", value=share)
    failed = level(
        with_fates(whole.requests, fates), arrivals, whole.duration, goals=goals,
        server=whole.server, results=(missed,),
    )  # fmt: skip
    return serving([failed], goals=goals)


def interrupted(count=60):
    """Return a record of which Ctrl-C ended the second level."""
    second = open_level(50, count, seed=50)
    fates = {count - 1: "unfinished", count - 2: "unfinished", count - 3: "unsent"}
    ended = level(
        with_fates(second.requests, fates), second.arrivals, second.duration, interrupted=True
    )
    return serving([open_level(25, count, seed=25), ended], interrupted=True)


def paused(count=400):
    """Return a level in which the server paused for a second: open loop beside service view."""
    whole = open_level(50, count, seed=5, pause=(4.0, 1.0))
    return serving([whole])


def bound_in_flight(count=400):
    """Return a level whose requests wait in the client for a free slot, before they are sent."""
    whole = open_level(110, count, seed=9)
    shown = whole.requests
    sent = tuple(max(due, last - SERVICE - NETWORK) for due, last in zip(
        shown.scheduled, shown.last, strict=True))  # fmt: skip
    columns = {
        name: getattr(shown, name) for name in ("fate", "status", "item", "batch", "service")
    }
    changed = requests(shown.scheduled, shown.last, sent=sent, **columns)
    return serving([level(changed, whole.arrivals, whole.duration, server=whole.server)])


@functools.cache
def streamed(count=120):
    """Return a language model's endpoint at two rates, with times of tokens."""
    return serving(
        [streamed_level(rate, count) for rate in (2, 4)],
        target=endpoint(),
        served_by=ENDPOINT,
        goals=(TTFT,),
        capacity=Capacity(
            rate=4.0, above_all_tried=True, reason="The highest rate that was tried met the goals."
        ),
    )


def streamed_level(rate, count=120, *, first=0.12, gap=0.02):
    """Return a level of streams: first content after 120 ms, then a token each 20 ms."""
    scheduled = poisson(rate, count, seed=rate)
    tokens = [16 + index % 9 for index in range(count)]
    firsts = [due + first * (1 + 0.3 * (index % 7) / 7) for index, due in enumerate(scheduled)]
    gaps = [
        [gap * (1 + 0.1 * ((index + place) % 3)) for place in range(made - 1)]
        for index, made in enumerate(tokens)
    ]
    ends = [begin + sum(times) for begin, times in zip(firsts, gaps, strict=True)]
    flat = [seconds for times in gaps for seconds in times]
    shown = requests(
        scheduled, ends, first=firsts, tokens_in=[128] * count, tokens_out=tokens, chunks=tokens,
        gaps=flat,
    )  # fmt: skip
    duration = math.nextafter(scheduled[-1], math.inf)
    window = 0.9 * duration
    steady = [index for index, due in enumerate(scheduled) if due >= 0.1 * duration]
    waits = distribution([firsts[index] - scheduled[index] for index in steady])
    result = judged(TTFT, waits)
    return level(
        shown, Arrivals(kind="poisson", rate=float(rate), seed=rate), duration,
        goals=(result.goal,), ttft=waits,
        itl=distribution([seconds for index in steady for seconds in gaps[index]], 8.0),
        tpot=distribution([sum(gaps[index]) / (tokens[index] - 1) for index in steady]),
        tokens=rate_of(sum(tokens[index] for index in steady), window),
        tokens_in=rate_of(128 * len(steady), window), tokens_by="usage", results=(result,),
    )  # fmt: skip


@functools.cache
def single_stream(count=200):
    """Return MLPerf's single stream: one request after the other, with its early stopping."""
    first = closed_level(count=count)
    stop = EarlyStopping(
        fraction=0.9, queries=count, needed=64, over=count - 64,
        estimate=first.latency.percentiles[-1].value,
    )  # fmt: skip
    return _of_calls([closed_level(count=count, early_stopping=stop)])


def scenarios(count=200):
    """Return multi-stream and offline: eight samples a query, and all at once."""
    return _of_calls([closed_level("multi-stream", count), closed_level("offline", count)])


def _of_calls(levels):
    return serving(levels, goals=(), served_by=ServedBy(kind="call", api="torchgauge"))


def without_levels():
    """Return a record of a run that Ctrl-C ended before its first level."""
    return serving([], interrupted=True)


def every():
    """Return all of these records by name."""
    made = (
        healthy, capacity_found, none_met, client_limited, with_errors, interrupted, paused,
        bound_in_flight, streamed, single_stream, scenarios, without_levels,
    )  # fmt: skip
    return {function.__name__: function() for function in made}
