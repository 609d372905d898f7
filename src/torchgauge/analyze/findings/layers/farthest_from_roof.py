"""The layer that would gain most at the device's roofs."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, layer_name
from torchgauge.analyze.findings.rule import Rule
from torchgauge.analyze.work.roof_quality import shortcomings
from torchgauge.records.finding import Finding
from torchgauge.records.profile import Profile


def _find(evidence: Evidence) -> Iterator[Finding]:
    gains = [
        ((layer.time or 0.0) * (1 - layer.efficiency), layer)
        for layer in evidence.leaves
        if layer.efficiency is not None and layer.efficiency < 1
    ]
    if not gains:
        return
    gain, layer = max(gains, key=lambda pair: pair[0])
    yield Finding(
        id="farthest-from-roof",
        severity="info",
        title=f"{layer_name(layer)} is farthest from the roofs",
        evidence=f"It takes {units.time(layer.time, 3)} and reaches "
        f"{units.percent(layer.efficiency)} of what the device can do"
        f"{_roof_caveat(evidence.profile)}: {units.time(gain, 3)}, "
        f"{units.percent(gain / evidence.time)} of the step, lie between.",
        time=gain,
        path=layer.path,
        node=layer.index,
        view="tree",
    )


def _roof_caveat(profile: Profile | None) -> str:
    """Return what makes the roofs too low, in brackets; empty if they are good."""
    roofline = None if profile is None else profile.roofline
    short = () if roofline is None else shortcomings(roofline.roofs)
    return f" (roofs: {', '.join(short)})" if short else ""


RULE = Rule("farthest-from-roof", _find)
