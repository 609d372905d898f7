"""Calls of a collective whose transfer took far longer than usual."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

MAX_CALLS = 3


def _find(evidence: Evidence) -> Iterator[Finding]:
    job = None if evidence.job is None else evidence.job.job
    for call in job.slow[:MAX_CALLS] if job is not None else ():
        size = "" if call.bytes is None else f" of {units.size(call.bytes)}"
        yield Finding(
            id="slow-collective",
            severity="warning",
            title=f"{call.name}{size}, call {call.number}, took {units.time(call.transfer)}",
            evidence=f"{call.transfer / call.usual:.1f} times the usual {units.time(call.usual)}, "
            f"{units.time(call.time)} after the first collective began; all ranks had arrived."
            if call.usual
            else f"Usually it takes no time; {units.time(call.time)} after the first one began.",
            remedy="See what else used the network then: another job, storage, a slow link.",
            time=call.transfer,
            worth=call.transfer - call.usual,
            view="ranks",
        )


RULE = Rule("slow-collective", _find)
