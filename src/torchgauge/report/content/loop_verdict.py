"""The verdict of a loop or of its ranks: what bounds it, the evidence, the next command."""

from __future__ import annotations

from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.loop_verdict import LoopVerdict
from torchgauge.records.trace.ranks import Ranks
from torchgauge.report.content.document import Items

HEADING = "Verdict"


def verdict_items(record: Loop | Ranks) -> list[Items]:
    """Return the verdict as lines; nothing of a record without one."""
    verdict = record.verdict
    if verdict is None:
        return []
    entries = [(_sign(verdict), verdict.title), *(("·", line) for line in verdict.evidence)]
    entries += [("$", verdict.command)] if verdict.command else []
    return [Items(HEADING, entries, recorded=True)]


def _sign(verdict: LoopVerdict) -> str:
    return "!" if verdict.fault else "="
