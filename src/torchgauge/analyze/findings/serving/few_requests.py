"""Percentiles that too few requests show to have an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

MAX_FACTOR = 100  # times the requests there were: no run is as long


def _find(evidence: Evidence) -> Iterator[Finding]:
    lacking = []
    for name, level in evidence.levels:
        percentile = None if level.latency is None else level.latency.percentile(0.99)
        is_steady = level.saturation is None or not level.saturation.saturated
        counts = is_steady and not level.left_out
        if percentile is None or percentile.interval is not None or not counts:
            continue
        if percentile.needed is not None and percentile.needed < MAX_FACTOR * level.count:
            # Of those that are sent, some are due before and after the window.
            sent = math.ceil(percentile.needed * max(len(level.requests) / level.count, 1))
            lacking.append((percentile.needed, level.count, name, sent))
    if not lacking:
        return
    needed, count, name, sent = max(lacking)
    yield Finding(
        id="few-requests",
        severity="info",
        title=f"p99 has no interval at {name}: it takes about {needed:,} requests",
        evidence=f"{count:,} were in the window. Requests in a queue resemble their neighbours, so "
        "that they are worth fewer independent ones; a rule that counts all is wrong most of the "
        "time.",
        remedy=f"--requests {sent} and a longer --for; or a lower rate, at which they are less "
        "alike.",
    )


RULE = Rule("few-requests", _find)
