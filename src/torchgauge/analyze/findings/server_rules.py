"""What a server does under load."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import rule
from torchgauge.records.finding import Finding
from torchgauge.records.serving.level import Level

# Of the 99th percentile of gaps between answers while requests wait, and of the median latency.
SERVER_PAUSE_FACTOR = 5.0
MIN_PAUSE = 0.05  # seconds
MIN_ANSWERS = 50


class Pause(NamedTuple):
    """When no request was answered, for how long, and how many were due by its end."""

    begin: float
    duration: float
    waiting: int


@rule("server-pause")
def server_pause(evidence: Evidence) -> Iterator[Finding]:
    """Find a time in which the server answered nothing while requests waited."""
    pauses = [
        (pause, name, level)
        for name, level in evidence.levels
        if (pause := longest_pause(level)) is not None
    ]
    if not pauses:
        return
    pause, name, level = max(pauses, key=lambda entry: entry[0].duration)
    share = pause.waiting / max(1, level.count)
    yield server_pause.finding(
        "warning",
        title=f"No answer for {units.time(pause.duration, 3)} while {pause.waiting:,} requests "
        "waited",
        evidence=f"At {name}, {units.time(pause.begin, 3)} after its begin. They are "
        f"{units.percent(share)} of the requests of that level. A client that sends the next "
        "request when the last was answered would have sent one of them, and not seen the others.",
        remedy="What the server did then: garbage collection, compilation, loading of weights, "
        "another process on its cores.",
    )


def longest_pause(level: Level) -> Pause | None:
    """Return the longest time without an answer that stands out; None without one."""
    if level.saturation is not None and level.saturation.saturated:
        return None
    answers = sorted(time for time in level.requests.last if time is not None)
    if len(answers) < MIN_ANSWERS or level.latency is None:
        return None
    median = level.latency.percentile(0.5)
    gaps = []
    for before, after, first_due in zip(
        answers, answers[1:], _first_unanswered(level, answers), strict=False
    ):
        begin = max(before, first_due)
        if after > begin:
            gaps.append((after - begin, begin, after))
    if len(gaps) < MIN_ANSWERS // 2 or median is None:
        return None
    ordered = sorted(gap for gap, _, _ in gaps)
    usual = ordered[round(0.99 * (len(ordered) - 1)) - 1]
    duration, begin, end = max(gaps)
    if duration < max(MIN_PAUSE, SERVER_PAUSE_FACTOR * usual, SERVER_PAUSE_FACTOR * median.value):
        return None
    waiting = sum(
        due <= end and (last is None or last >= end)
        for due, last in zip(level.requests.scheduled, level.requests.last, strict=True)
    )
    return Pause(begin, duration, waiting)


def _first_unanswered(level: Level, answers: list[float]) -> Iterator[float]:
    """Yield, after each answer, when the oldest request came that was still waiting."""
    pairs = zip(level.requests.scheduled, level.requests.last, strict=True)
    waiting = sorted((last, due) for due, last in pairs if last is not None)
    earliest = [due for _, due in waiting]
    earliest_due = list(itertools.accumulate(reversed(earliest), min))[::-1]
    yield from earliest_due[1 : len(answers)]


STREAM_STALLS_FACTOR = 10.0  # of the median gap


@rule("stream-stalls", source="https://docs.vllm.ai/en/stable/configuration/optimization.html")
def stream_stalls(evidence: Evidence) -> Iterator[Finding]:
    """Find streams that stop for far longer than between two of their contents."""
    stalls = []
    for name, level in evidence.levels:
        median = None if level.itl is None else level.itl.percentile(0.5)
        if level.itl is not None and median is not None and median.value > 0:
            stalls.append((level.itl.high / median.value, median.value, level.itl.high, name))
    if not stalls:
        return
    factor, median_gap, longest, name = max(stalls)
    if factor < STREAM_STALLS_FACTOR:
        return
    yield stream_stalls.finding(
        "warning",
        title=f"A stream stopped for {units.time(longest, 3)} between two of its contents",
        evidence=f"{factor:,.0f} times the median gap of {units.time(median_gap, 3)}, at {name}. "
        "A mean per token hides it.",
        remedy="What held its decode steps up: long prompts of others (chunked prefill, fewer "
        "tokens a step), requests that were put out of the cache and computed again.",
    )


MIN_READINGS = 12
NOTABLE = 0.1  # of the memory at first
MIN_GROWTH = 50_000_000  # bytes


@rule("memory-growth")
def memory_growth(evidence: Evidence) -> Iterator[Finding]:
    """Find a server whose memory grows for as long as it is under load."""
    for name, level in reversed(evidence.levels):
        use = level.server
        if use is None or len(use.memory) < MIN_READINGS:
            continue
        # The first quarter is warm-up; of the others each must lie above the one before.
        quarter = len(use.memory) // 4
        parts = [use.memory[quarter * part : quarter * (part + 1)] for part in (1, 2, 3)]
        growth = min(parts[2]) - max(parts[0])
        rises = max(parts[0]) < min(parts[1]) and max(parts[1]) < min(parts[2])
        if not rises or growth < max(MIN_GROWTH, NOTABLE * max(parts[0])):
            continue
        seconds = use.time[3 * quarter] - use.time[2 * quarter - 1]
        yield memory_growth.finding(
            "warning",
            title=f"The server's memory grew by {units.size(growth, 3)} at {name}",
            evidence=f"From {units.size(max(parts[0]), 3)} to {units.size(max(parts[2]), 3)} in "
            f"{units.time(seconds, 3)} of a constant load, after warm-up.",
            remedy="Something is kept with each request: caches without a limit, results that are "
            "still referred to. A longer --for tells whether it ends.",
        )
        return


LATENCY_GROWTH_FACTOR = 2.0  # of the latency at the lowest rate


@rule("latency-growth")
def latency_growth(evidence: Evidence) -> Iterator[Finding]:
    """Find the rate from which latency grows far more than the load."""
    for fraction in (0.99, 0.5):
        points = sorted(
            (level.arrivals.rate, percentile.value, name)
            for name, level in evidence.levels
            if level.arrivals.rate is not None
            and level.latency is not None
            and not (level.client is not None and level.client.limited)
            and (percentile := level.latency.percentile(fraction)) is not None
        )
        if len(points) > 1:
            break
    else:
        return
    _, lowest, lowest_name = points[0]
    for (before_rate, _, before), (rate, value, name) in itertools.pairwise(points):
        if rate > before_rate and value > LATENCY_GROWTH_FACTOR * lowest:
            yield latency_growth.finding(
                title=f"Latency is {value / lowest:.1f} times as long at {name}",
                evidence=f"p{100 * fraction:g} is {units.time(lowest, 3)} at {lowest_name} and "
                f"{units.time(value, 3)} at {name}: between {before} and {name} requests begin to "
                "wait for each other.",
                remedy="Plan for a rate below that" + _workers(evidence),
            )
            return


def _workers(evidence: Evidence) -> str:
    """Return how to plan workers, where the server's times are known."""
    if evidence.serving is None or evidence.serving.service_times is None:
        return "."
    return ": `torchgauge capacity RECORD` says how many workers keep each of them there."


FULL = 0.5  # share of the limit


@rule("small-batches")
def small_batches(evidence: Evidence) -> Iterator[Finding]:
    """Find batches that stay far below their limit while each request waits for them to fill."""
    serving = evidence.serving
    if serving is None or not serving.served_by.max_delay:
        return
    limit, delay = serving.served_by.max_batch, serving.served_by.max_delay
    if limit is None or limit < 2:
        return
    means = []
    for name, level in evidence.levels:
        sizes = [size for size in level.requests.batch if size]
        if sizes and not (level.saturation is not None and level.saturation.saturated):
            # Of batches, not of requests: one of 8 has 8 requests that name it.
            means.append((1 / statistics.fmean(1 / size for size in sizes), name, level))
    if not means:
        return
    mean, name, level = max(means, key=lambda entry: entry[0])
    if mean >= FULL * limit:
        return
    median = None if level.latency is None else level.latency.percentile(0.5)
    of_latency = "" if median is None else f", of a median latency of {units.time(median.value, 3)}"
    yield small_batches.finding(
        title=f"Batches have {units.significant(mean, 2)} of {limit} requests on average",
        evidence=f"At {name}. A request waits up to {units.time(delay, 3)} for others to "
        f"come{of_latency}.",
        remedy="A shorter --max-delay at such rates, or a longer one if they are to be larger; "
        "`torchgauge capacity RECORD --tune` compares them.",
    )
