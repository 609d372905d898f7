"""What most of the peak memory is."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    memory = None if evidence.profile is None else evidence.profile.memory
    if memory is None or not memory.peak:
        return
    name, part = max(memory.parts.items(), key=lambda item: item[1])
    yield Finding(
        id="largest-part-of-memory",
        severity="info",
        title=f"{name.capitalize()}: {units.percent(part / memory.peak)} of the peak memory",
        evidence=f"{units.size(part)} of the {units.size(memory.peak)} alive at the peak.",
        view="memory",
    )


RULE = Rule("largest-part-of-memory", _find)
