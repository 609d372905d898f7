"""Time that is in no layer."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    buckets = [node for node in evidence.nodes if node.kind == "bucket"]
    if not buckets or evidence.rank is not None:
        return
    bucket = max(buckets, key=lambda node: node.time or 0.0)
    time = bucket.time or 0.0
    yield Finding(
        id="outside-layers",
        severity="info",
        title=f"{units.percent(time / evidence.time)} of the time is in no layer: {bucket.name}",
        evidence=f"{units.time(time, 3)} of {units.time(evidence.time, 3)}.",
        time=time,
        node=bucket.index,
        view="tree",
    )


RULE = Rule("outside-layers", _find)
