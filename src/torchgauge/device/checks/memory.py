"""Checks for memory shortage: swapping, memory pressure."""

from __future__ import annotations

from torchgauge import units
from torchgauge.device.checks.readings import Readings
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding

LEAST_AVAILABLE = 0.05
MOST_PRESSURE = 0.01
SERIOUS_PRESSURE = 0.10


def swap(now: Readings) -> Check:
    """Look for pages that move to or from swap, and for what is there."""
    key, title = "swap", "swap"
    memory = now.files.numbers("proc/meminfo")
    if "SwapTotal" not in memory or "SwapFree" not in memory:
        return Check.from_findings(key, title, unknown="there is no /proc/meminfo")
    used = 1024 * (memory["SwapTotal"] - memory["SwapFree"])
    moved = now.activity.swapped if now.activity is not None else None
    findings: tuple[Finding, ...] = ()
    if used or moved:
        moving = f"; {moved:,} pages moved while doctor watched" if moved else ""
        findings = (
            Finding(
                id="swapping",
                severity="serious" if moved else "info",
                title="The machine is swapping" if moved else "Some memory is swapped out",
                evidence=f"{units.size(used, 3)} in swap{moving}.",
                remedy="Free memory, or use a smaller batch (and swapoff -a on test machines).",
            ),
        )
    summary = f"{units.size(used, 3)} in use" if memory["SwapTotal"] else "none"
    return Check.from_findings(key, title, summary, findings)


def pressure(now: Readings) -> Check:
    """Look for tasks that wait for memory, and for memory that is nearly used up."""
    key, title = "memory", "memory"
    memory = now.files.numbers("proc/meminfo")
    waiting = now.files.pressure("memory")
    findings = []
    if waiting is not None and waiting > MOST_PRESSURE:
        findings.append(
            Finding(
                id="memory-pressure",
                severity="serious" if waiting > SERIOUS_PRESSURE else "warning",
                title="Tasks wait for memory",
                evidence=f"Some task waited {units.percent(waiting)} of the last 10 s (PSI).",
                remedy="Free memory, or use a smaller batch.",
            )
        )
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    if total and available is not None and available < LEAST_AVAILABLE * total:
        findings.append(
            Finding(
                id="memory-low",
                severity="warning",
                title="Memory is nearly used up",
                evidence=f"{units.size(1024 * available, 3)} of {units.size(1024 * total, 3)} "
                "are available.",
                remedy="Stop what uses it; the system reclaims pages while you measure.",
            )
        )
    summary = f"{units.size(1024 * available, 3)} available" if available is not None else ""
    missing = [
        "" if memory else "there is no /proc/meminfo",
        "the kernel counts no pressure (PSI)" if waiting is None else "",
    ]
    return Check.from_findings(
        key, title, summary, tuple(findings), "; ".join(filter(None, missing))
    )
