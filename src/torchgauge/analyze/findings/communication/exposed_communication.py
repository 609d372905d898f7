"""Communication beside which nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    for device in evidence.device_times:
        breakdown = device.breakdown
        time, window = breakdown.exposed_communication, breakdown.window
        if share(time, window) < NOTICEABLE:
            continue
        yield Finding(
            id="exposed-communication",
            severity=severity(share(time, window)),
            title=f"{evidence.called(device.device)} does nothing but communicate for "
            f"{units.percent(time / window)} of the window",
            evidence=f"{units.time(time)} of {units.time(breakdown.communication)} "
            "of communication overlap with no computation.",
            remedy="Overlap it (buckets, prefetching, order); see whether a rank comes late.",
            time=time,
            worth=time,
            view="devices",
        )


RULE = Rule("exposed-communication", _find)
