"""A single call of a collective in which all ranks waited long for one."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

MAX_CALLS = 3


def _find(evidence: Evidence) -> Iterator[Finding]:
    """Yield the longest waits; those for a rank that is late time and again are the straggler's."""
    job = None if evidence.job is None else evidence.job.job
    if job is None:
        return
    stragglers = {straggler.rank for straggler in job.stragglers}
    late = [call for call in job.late if call.rank not in stragglers]
    for call in late[:MAX_CALLS]:
        size = "" if call.bytes is None else f" of {units.size(call.bytes)}"
        yield Finding(
            id="late-rank",
            severity="warning",
            title=f"All wait {units.time(call.late)} for rank {call.rank} in one {call.name}{size}",
            evidence=f"Call {call.number}, {units.time(call.time)} after the first collective "
            "began. A single delay: no rank is late more often than chance would have it.",
            remedy=f"Look at what rank {call.rank} did before it: garbage collection, an "
            "allocation, a checkpoint, a batch that is larger.",
            time=call.late,
            worth=call.late,
            view="ranks",
        )


RULE = Rule("late-rank", _find, source="https://docs.pytorch.org/docs/stable/notes/ddp.html")
