"""A time in which the server answered nothing while requests waited."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.serving.level import Level

# Of the 99th percentile of gaps between answers while requests wait, and of the median latency.
FACTOR = 5.0
LEAST = 0.05  # seconds
MIN_ANSWERS = 50


class Pause(NamedTuple):
    """When no request was answered, for how long, and how many were due by its end."""

    begin: float
    duration: float
    waiting: int


def _find(evidence: Evidence) -> Iterator[Finding]:
    pauses = [
        (pause, name, level)
        for name, level in evidence.levels
        if (pause := longest_pause(level)) is not None
    ]
    if not pauses:
        return
    pause, name, level = max(pauses, key=lambda entry: entry[0].duration)
    share = pause.waiting / max(1, level.count)
    yield Finding(
        id="server-pause",
        severity="warning",
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
    if duration < max(LEAST, FACTOR * usual, FACTOR * median.value):
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
    least = list(itertools.accumulate(reversed(earliest), min))[::-1]
    yield from least[1 : len(answers)]


RULE = Rule("server-pause", _find)
