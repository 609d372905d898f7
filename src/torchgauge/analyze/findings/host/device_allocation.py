"""Memory is asked from the driver, or given back to it, while the program runs."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.host.delay import delayed_by, title
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    delay = delayed_by(evidence, "allocation")
    if delay is None or delay.share < NOTICEABLE:
        return
    yield Finding(
        id="device-allocation",
        severity=severity(delay.share),
        title=title(evidence, delay, "allocation by the driver"),
        evidence=f"{delay.text}.",
        remedy="Let the caching allocator keep it: no torch.cuda.empty_cache() in the step, the "
        "largest batch first, PYTORCH_ALLOC_CONF=expandable_segments:True. cudaFree in a step is "
        "a retry near the limit: use less memory. Make pinned buffers once.",
        time=delay.cost,
        worth=delay.cost,
        view="devices" if evidence.device_times else "tree",
    )


RULE = Rule(
    "device-allocation",
    _find,
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
    explains=("idle-host",),
)
