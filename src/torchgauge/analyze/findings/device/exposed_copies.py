"""Copies between host and device beside which nothing runs."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

_WITH_HOST = ("host to device", "device to host")


def _find(evidence: Evidence) -> Iterator[Finding]:
    if evidence.rank is None or len(evidence.device_times) != 1:
        return  # copies are known for all devices together
    with_host = [copies for copies in evidence.rank.copies if copies.kind in _WITH_HOST]
    total = sum(copies.time for copies in with_host)
    without_host = sum(copies.time for copies in evidence.rank.copies) - total
    pageable = sum(copies.time for copies in with_host if copies.pageable)
    (device,) = evidence.device_times
    # What is exposed is known of all copies together: so much of it is between host and device.
    time = min(max(device.breakdown.exposed_copies - without_host, 0.0), total)
    if share(time, device.breakdown.window) < NOTICEABLE or pageable > total / 2:
        return
    yield RULE.costs(
        time,
        device.breakdown.window,
        title=f"{evidence.called(device.device)} does nothing but copy from and to the host for "
        f"{units.percent(time / device.breakdown.window)} of the window",
        evidence=f"At least {units.time(time)} of {units.time(total)} of such copies overlap with "
        "no kernel.",
        remedy="Copy the next batch on a stream of its own while this one is computed, from pinned "
        "memory: with torch.cuda.stream(side): batch.to(device, non_blocking=True).",
        view="devices",
    )


RULE = Rule(
    "exposed-copies",
    _find,
    source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    jax_remedy="Move the next batch while this one is computed: jax.device_put returns at once.",
)
