"""Device work that was launched before the recording began."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    rank = evidence.rank
    if rank is None or not evidence.has_launches:
        return
    before = share(rank.launched_before, rank.device_time)
    if before < NOTICEABLE:
        return
    yield Finding(
        id="launched-before",
        severity="info",
        title=f"{units.percent(before)} of the device's time has no launch in the file",
        evidence=f"{units.time(rank.launched_before)} were launched before the window; "
        "by which layer is not known.",
        remedy="Record after a warm-up (schedule(wait=…, warmup=…)), and synchronise before.",
        time=min(rank.launched_before, rank.window),  # streams run at once
        view="tree",
    )


RULE = Rule(
    "launched-before",
    _find,
    jax_remedy="Record after a warm-up, and call jax.block_until_ready before.",
)
