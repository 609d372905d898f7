"""Requests that wait in the client for a free slot, which a time from sending would hide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding
from torchgauge.records.serving.level import Level

NOTABLE = 0.2  # share of the latency at the same percentile


class LongWait(NamedTuple):
    """A level whose requests were sent long after they were due, for no lateness of the client.

    `slots` is whether as many waited for a free slot as its percentile takes, as far as is known.
    """

    name: str
    level: Level
    slots: bool
    amounts: str
    service: str


def long_waits(evidence: Evidence) -> Iterator[LongWait]:
    """Yield the levels with long waits, the last first."""
    for name, level in reversed(evidence.levels):
        if level.wait is None or level.latency is None or level.service is None:
            continue
        if level.client is not None and level.client.limited:
            continue
        if level.client is None and level.scenario == "offline":  # calls, which wait for each other
            continue
        fraction = 0.99 if level.latency.percentile(0.99) is not None else 0.5
        parts = [part.percentile(fraction) for part in (level.wait, level.latency, level.service)]
        wait, latency, service = parts
        if wait is None or latency is None or service is None:
            continue
        if wait.value < NOTABLE * latency.value:
            continue
        waited = None if level.client is None else level.client.waited
        yield LongWait(
            name,
            level,
            waited is None or waited >= (1 - fraction) * len(level.requests),
            f"p{100 * fraction:g} is {units.time(wait.value, 3)} from when a request was due until "
            f"it was sent; {units.time(latency.value, 3)} until its answer.",
            units.time(service.value, 3),
        )


def _find(evidence: Evidence) -> Iterator[Finding]:
    long_wait = next((wait for wait in long_waits(evidence) if wait.slots), None)
    if long_wait is not None:
        yield Finding(
            id="in-flight-limit",
            severity="warning",
            title=f"Requests wait for a free slot in flight at {long_wait.name}",
            evidence=f"{long_wait.amounts} Counted from sending, as other clients do, the same "
            f"requests show {long_wait.service}.",
            remedy="A higher --in-flight, if the server is to queue them; else it is what "
            "that number of users would wait.",
        )


RULE = Rule("in-flight-limit", _find)
