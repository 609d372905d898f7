"""The rank that the others wait for."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

SERIOUS = 0.1  # of the window


def _find(evidence: Evidence) -> Iterator[Finding]:
    job = None if evidence.job is None else evidence.job.job
    if job is None or job.straggler is None or job.lost is None:
        return
    lost_share = job.lost / evidence.time
    yield Finding(
        id="straggler",
        severity="serious" if lost_share > SERIOUS else "warning",
        title=f"Rank {job.straggler} comes last: the others wait {units.time(job.lost)} for it",
        evidence=f"{units.percent(lost_share)} of the window; "
        f"{job.calls:,} collectives were matched across ranks.",
        remedy="Compare its breakdown with the others': more work, a slower device, or its host.",
        time=job.lost,
        worth=job.lost,
        view="ranks",
    )


RULE = Rule("straggler", _find)
