"""Communication beside which nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

_WAITS = (
    "Even out the ranks' work first: most of it waits for the last one, and overlap only hides it."
)


def _find(evidence: Evidence) -> Iterator[Finding]:
    for device in evidence.device_times:
        breakdown = device.breakdown
        time, window = breakdown.exposed_communication, breakdown.window
        if share(time, window) < NOTICEABLE:
            continue
        yield RULE.costs(
            time,
            window,
            title=f"{evidence.called(device.device)} does nothing but communicate for "
            f"{units.percent(time / window)} of the window",
            evidence=f"{units.time(time)} of {units.time(breakdown.communication)} "
            f"of communication overlap with no computation{_waiting(evidence)}.",
            remedy=_WAITS
            if _waits(evidence) > time / 2
            else "Overlap it (buckets, prefetching, order); see whether a rank comes late.",
            view="devices",
        )


def _waits(evidence: Evidence) -> float:
    """Return the seconds that the rank waited for others, as far as their files are known."""
    collectives = () if evidence.rank is None else evidence.rank.collectives
    return sum(kind.wait or 0.0 for kind in collectives)


def _waiting(evidence: Evidence) -> str:
    waits = _waits(evidence)
    return f"; all communication waits {units.time(waits)} for other ranks" if waits else ""


RULE = Rule("exposed-communication", _find)
