"""Code of kernels is loaded at their first launch, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.host.delay import delayed_by, title
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    delay = delayed_by(evidence, "first launch")
    if delay is None or delay.share < NOTICEABLE:
        return
    yield Finding(
        id="first-launches",
        severity=severity(delay.share),
        title=title(evidence, delay, "first launches of kernels"),
        evidence=f"{delay.text}.",
        remedy="They occur once: leave the first steps out of a measurement, and run the model "
        "before it serves. CUDA_MODULE_LOADING=EAGER loads all code at the start.",
        time=delay.cost,
        worth=delay.cost,
        view="devices" if evidence.device_times else "tree",
    )


RULE = Rule(
    "first-launches",
    _find,
    source="https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/lazy-loading.html",
    explains=("idle-host",),
)
