"""Ranks that wait for each other in turn: none is late more often, and all lose time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule, share
from torchgauge.records.finding import Finding

# Some jitter is everywhere: ranks that wait for less have nothing to balance.
WAITING = 0.1


def _find(evidence: Evidence) -> Iterator[Finding]:
    """The work of a step differs from rank to rank and from step to step (lengths of sequences)."""
    job = None if evidence.job is None else evidence.job.job
    if job is None or len(job.waits) < 2:
        return
    waiting = statistics.median(wait.waits for wait in job.waits)
    explained = sum(straggler.lost for straggler in job.stragglers)
    explained += sum(call.late for call in job.late) if not job.stragglers else 0.0
    if share(waiting, evidence.time) < WAITING or explained > waiting / 2:
        return
    waiting = min(waiting, evidence.time)
    yield RULE.costs(
        waiting,
        evidence.time,
        title=f"Ranks wait for each other in turn, {units.percent(share(waiting, evidence.time))} "
        "of the window",
        evidence=f"{units.time(waiting)} of the middle rank in {job.calls:,} collectives; no rank "
        "is the last more often than chance would have it.",
        remedy="Make the ranks' batches cost the same: group sequences of one length, pack them, "
        "or balance by tokens instead of by samples.",
        view="ranks",
    )


RULE = Rule(
    "uneven-work",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/ddp.html",
)
