"""Percentiles that too few requests show to have an interval."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

MANY = 100  # times the requests there were: no run is as long


def _find(evidence: Evidence) -> Iterator[Finding]:
    lacking = []
    for name, level in evidence.levels:
        shown = None if level.latency is None else level.latency.percentile(0.99)
        is_steady = level.saturation is None or not level.saturation.saturated
        if shown is None or shown.interval is not None or not is_steady:
            continue
        if shown.needed is not None and shown.needed < MANY * level.count:
            lacking.append((shown.needed, level.count, name))
    if not lacking:
        return
    needed, count, name = max(lacking)
    yield Finding(
        id="few-requests",
        severity="info",
        title=f"p99 has no interval at {name}: it takes about {needed:,} requests",
        evidence=f"{count:,} were in the window. Requests in a queue resemble their neighbours, so "
        "that they are worth fewer independent ones; a rule that counts all is wrong most of the "
        "time.",
        remedy=f"--requests {needed} and a longer --for; or a lower rate, at which they are less "
        "alike.",
    )


RULE = Rule("few-requests", _find)
