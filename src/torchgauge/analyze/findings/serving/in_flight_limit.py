"""Requests that wait in the client for a free slot, which a time from sending would hide."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

NOTABLE = 0.2  # share of the latency at the same percentile


def _find(evidence: Evidence) -> Iterator[Finding]:
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
        share = f"p{100 * fraction:g}"
        yield Finding(
            id="in-flight-limit",
            severity="warning",
            title=f"Requests wait for a free slot in flight at {name}",
            evidence=f"{share} is {units.time(wait.value, 3)} from when a request was due until it "
            f"was sent; {units.time(latency.value, 3)} until its answer. Counted from sending, as "
            f"other clients do, the same requests show {units.time(service.value, 3)}.",
            remedy="A higher --in-flight, if the server is to queue them; else it is what "
            "that number of users would wait.",
        )
        return


RULE = Rule("in-flight-limit", _find)
