"""torch.compile compiles, or Triton tunes, in steps that should only run."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.host.delay import delayed_by, title
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, severity
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    delay = delayed_by(evidence, "compilation")
    if delay is None or delay.share < NOTICEABLE:
        return
    yield Finding(
        id="compilation",
        severity=severity(delay.share),
        title=title(evidence, delay, "compilation"),
        evidence=f"{delay.text}.",
        remedy="Compile before, by steps with each shape that occurs. TORCH_LOGS=recompiles says "
        "why code is compiled again; for shapes that vary torch.compile(dynamic=True), or padding "
        "to few sizes.",
        time=delay.cost,
        worth=delay.cost,
        view="devices" if evidence.device_times else "tree",
    )


RULE = Rule(
    "compilation",
    _find,
    source="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.recompilation.html",
    explains=("idle-host", "hottest-operator", "outside-layers"),
)
