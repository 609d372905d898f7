"""A rate that the server cannot answer: requests pile up for as long as it lasts."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    for name, level in evidence.levels:
        saturation = level.saturation
        if saturation is None or not saturation.saturated or saturation.slope is None:
            continue
        bounds = saturation.interval
        within = ""
        if bounds is not None:
            low, high = (units.significant(end, 3) for end in (bounds.low, bounds.high))
            within = f" ({low} … {high})"
        answered = ""
        if level.completed is not None:
            answered = f"; it answered {units.rate(level.completed.value, 'requests', 3)}"
        yield Finding(
            id="saturated",
            severity="serious",
            title=f"Saturated at {name}",
            evidence=f"The backlog grew by {units.significant(saturation.slope, 3)}{within} "
            f"requests each second, to {saturation.backlog:,}{answered}. What requests waited says "
            "how long the run was, and nothing of a steady state.",
            remedy="A lower rate; more workers or larger batches; or refusing requests early, so "
            "that those that are accepted are answered in time.",
        )
        return


RULE = Rule("saturated", _find, source="https://sre.google/sre-book/addressing-cascading-failures/")
