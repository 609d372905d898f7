"""Check of the energy counters: whether they are there, and may be read."""

from __future__ import annotations

from torchgauge.device.checks.readings import Readings
from torchgauge.device.energy import (
    DENIED, NO_COUNTERS, VIRTUAL, is_virtual, zones,
)  # fmt: skip
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding


def energy(now: Readings) -> Check:
    """Look for processors' energy counters, which `--energy` reads; GPUs have their own."""
    key, title = "energy", "energy"
    if is_virtual(now.files):
        return Check.from_findings(key, title, unknown=VIRTUAL)
    folders = list(zones(now.files))
    if not folders:
        return Check.from_findings(key, title, unknown=NO_COUNTERS)
    closed = [folder for folder in folders if now.files.text(f"{folder}/energy_uj") is None]
    findings: tuple[Finding, ...] = ()
    if closed:
        findings = (
            Finding(
                id="energy-denied",
                severity="info",
                title="Energy counters cannot be read by this user",
                evidence=f"{len(closed)} of {len(folders)} counters of processors.",
                remedy=f"{DENIED}. Fine steps of power tell other programs' secrets (PLATYPUS): "
                "not on a shared machine.",
            ),
        )
    readable = len(folders) - len(closed)
    return Check.from_findings(key, title, f"{readable} of {len(folders)} counters", findings)
