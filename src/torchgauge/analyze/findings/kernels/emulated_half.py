"""Half precision that the processor computes slower than single precision."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

_HALF = ("float16", "bfloat16")
CLEARLY = 0.7  # of the peak in float32: two measurements differ less


def _find(evidence: Evidence) -> Iterator[Finding]:
    profile = evidence.profile
    if profile is None or profile.cost is None or profile.roofline is None:
        return
    roofs = profile.roofline.roofs
    full = roofs.peak("float32")
    for dtype in _HALF:
        half = roofs.peak(dtype)
        if full is None or half is None or half > CLEARLY * full:
            continue
        time = evidence.product_time(dtype)
        if share(time, evidence.time) < NOTICEABLE:
            continue
        yield RULE.costs(
            time,
            evidence.time,
            title=f"This processor computes products in {dtype} slower than in float32",
            evidence=f"{units.time(time)}, {units.percent(time / evidence.time)} of the step; at "
            f"most {units.rate(half, 'FLOP')} in {dtype}, {units.rate(full, 'FLOP')} in float32.",
            remedy="Compute in float32 here, or on a processor with instructions for this type "
            "(AMX, AVX512-BF16, AVX512-FP16).",
            worth=time * (1 - half / full),
        )


RULE = Rule(
    "emulated-half",
    _find,
    source="https://docs.pytorch.org/docs/stable/amp.html#cpu-op-specific-behavior",
)
