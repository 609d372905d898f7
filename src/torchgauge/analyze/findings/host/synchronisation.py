"""Operators in which the host waits for the device."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    rank = evidence.rank
    waits = [] if rank is None else [wait for wait in rank.synchronisations if wait.operator]
    time = sum(wait.time for wait in waits)
    if share(time, evidence.time) < NOTICEABLE:
        return
    longest = waits[0]
    location = f" in {longest.layer}" if longest.layer else ""
    yield Finding(
        id="synchronisation",
        severity="warning",
        title=f"Operators make the host wait for the device, {units.time(time)} in all",
        evidence=f"{longest.count:,} × {longest.operator}{location} ({longest.call}): "
        f"{units.time(longest.time)}.",
        remedy="Leave values on the device: no .item(), .cpu(), print or if in the step.",
        time=time,
        worth=time,
        path=longest.layer,
        view="tables",
    )


RULE = Rule("synchronisation", _find)
