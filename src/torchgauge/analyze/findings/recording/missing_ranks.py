"""Ranks of a job without a file."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding

MAX_NUMBERS = 8


def _find(evidence: Evidence) -> Iterator[Finding]:
    trace = evidence.job
    if trace is None or not trace.missing:
        return
    named = ", ".join(map(str, trace.missing[:MAX_NUMBERS]))
    named += " …" * (len(trace.missing) > MAX_NUMBERS)
    yield Finding(
        id="ranks-missing",
        severity="info",
        title=f"{len(trace.missing)} ranks have no file: {named}"
        if len(trace.missing) > 1
        else f"Rank {named} has no file",
        evidence=f"{len(trace.ranks)} files could be read; the job has "
        f"{len(trace.missing) + len(trace.ranks)} ranks.",
        remedy="The straggler may be among them: collect the files of all ranks.",
    )


RULE = Rule("ranks-missing", _find)
