"""Findings in words: those of a record that are worth most, what each is worth, and verdicts."""

from __future__ import annotations

from typing import TypeGuard

from torchgauge import units
from torchgauge.analyze.findings.catalogue import findings
from torchgauge.records.finding import Finding
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.trace.ranks import Ranks
from torchgauge.report.content.document import Detailed, Items

MAX_FINDINGS = 3
HEADING = "What matters most"
VERDICT = "Verdict"


def most_important(record: Generation | Profile | Loop | Serving) -> list[Items]:
    """Return the findings that are worth most, if any, each with what to do about it."""
    entries = [
        ("·", Detailed(finding.title, f"  {finding.remedy}" * bool(finding.remedy)))
        for finding in findings_of(record)[:MAX_FINDINGS]
    ]
    return [Items(HEADING, entries)] if entries else []


def findings_of(record: Generation | Profile | Loop | Serving) -> tuple[Finding, ...]:
    """Return a record's findings; of a record without any they are looked for."""
    if isinstance(record, Generation | Serving):
        return record.findings
    return record.findings or findings(record)


def has_findings(record: object) -> TypeGuard[Generation | Profile | Loop | Serving]:
    """Whether a record's findings are in its conclusion, in short, and in no block."""
    return isinstance(record, Generation | Profile | Loop | Serving)


def evidence_text(finding: Finding) -> str:
    """Return a finding's evidence, with what its remedy could save where that is known."""
    if finding.worth is None:
        return finding.evidence
    return f"{finding.evidence} Worth at most {units.time(finding.worth)}."


def verdict_items(record: Loop | Ranks) -> list[Items]:
    """Return the verdict as lines; nothing of a record without one."""
    verdict = record.verdict
    if verdict is None:
        return []
    entries = [
        ("!" if verdict.fault else "=", verdict.title),
        *(("·", line) for line in verdict.evidence),
    ]
    entries += [("$", verdict.command)] if verdict.command else []
    return [Items(VERDICT, entries, recorded=True)]
