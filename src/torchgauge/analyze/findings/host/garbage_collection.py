"""Python's garbage collector runs in the loop, and stops all threads meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.host.delay import delayed_by, title
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    delay = delayed_by(evidence, "garbage collection")
    if delay is None or delay.share < NOTICEABLE:
        return
    yield Finding(
        id="garbage-collection",
        severity=severity(delay.share),
        title=title(evidence, delay, "garbage collection"),
        evidence=f"{delay.text}.",
        remedy="Call no gc.collect() in the step. gc.freeze() after set-up leaves out what lives "
        "on; or gc.disable(), and gc.collect() every some hundred steps.",
        time=delay.cost,
        worth=delay.cost,
        view="devices" if evidence.device_times else "tree",
    )


RULE = Rule(
    "garbage-collection",
    _find,
    source="https://docs.python.org/3/library/gc.html#gc.freeze",
    explains=("idle-host",),
)
