"""Calls that take far longer than the median."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

SLOW_TAIL = 1.3
# With fewer calls the slowest one decides.
ENOUGH = 100


def _find(evidence: Evidence) -> Iterator[Finding]:
    latency = None if evidence.profile is None else evidence.profile.latency
    if latency is None or len(latency.samples) < ENOUGH or latency.p99 < SLOW_TAIL * latency.median:
        return
    times = latency.p99 / latency.median
    yield Finding(
        id="slow-tail",
        severity="info",
        title=f"The slowest calls take {units.significant(times, 2)}× the median",
        evidence=f"1 % of calls take {units.time(latency.p99)} or more, half of them at most "
        f"{units.time(latency.median)}.",
        view="latency",
    )


RULE = Rule("slow-tail", _find)
