"""Products in single precision on a device that computes half precision much faster."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import SERIOUS, Rule, share
from torchgauge.records.finding import Finding

# What a cast costs is won back from about here on.
FASTER = 1.5


def _find(evidence: Evidence) -> Iterator[Finding]:
    profile = evidence.profile
    if profile is None or profile.cost is None or profile.roofline is None:
        return
    if profile.target.precision not in ("native", "fp32"):
        return
    roofs = profile.roofline.roofs
    single = roofs.peak("float32", tf32=profile.environment.settings.fp32_matmul == "tf32")
    half = roofs.peak("bfloat16")
    if single is None or half is None or half < FASTER * single:
        return
    time = evidence.product_time("float32")
    if share(time, evidence.time) < SERIOUS:
        return
    yield Finding(
        id="faster-half",
        severity="info",
        title=f"This device computes products in bfloat16 {units.significant(half / single, 2)} "
        "times as fast as in float32",
        evidence=f"{units.time(time)}, {units.percent(time / evidence.time)} of the step, are "
        f"products in float32; at most {units.rate(half, 'FLOP')} against "
        f"{units.rate(single, 'FLOP')}.",
        remedy="Where 8 bits of mantissa do: torch.autocast(device_type, torch.bfloat16), or "
        "model.to(torch.bfloat16).",
        time=time,
        worth=time * (1 - single / half),
        view="tree",
    )


RULE = Rule(
    "faster-half",
    _find,
    source="https://docs.pytorch.org/docs/stable/amp.html",
)
