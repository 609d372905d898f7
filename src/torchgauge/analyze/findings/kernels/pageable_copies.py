"""Copies from or to memory of the host that is not pinned."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    copies = [calls for calls in evidence.kernels if calls.kernel.pageable]
    time = sum(calls.time for calls in copies)
    if share(time, evidence.device_time) < NOTICEABLE:
        return
    count = sum(calls.kernel.calls for calls in copies)
    yield Finding(
        id="pageable-copies",
        severity="warning",
        title=f"{count:,} copies use pageable memory of the host",
        evidence=f"{units.time(time)}, {units.percent(time / evidence.device_time)} of the "
        "device's time; each stops the host as well.",
        remedy="Pin it: DataLoader(pin_memory=True), and .to(device, non_blocking=True).",
        time=time,
        worth=time,
        view="tables",
    )


RULE = Rule(
    "pageable-copies",
    _find,
    source="https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    jax_remedy="Leave data on the device, or move it while the step before runs "
    "(jax.device_put returns at once).",
)
