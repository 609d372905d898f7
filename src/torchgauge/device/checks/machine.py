"""Checks of the clock source, of virtualization and of energy counters."""

from __future__ import annotations

from torchgauge import units
from torchgauge.device.checks.readings import Readings
from torchgauge.device.energy import DENIED, NO_COUNTERS, VIRTUAL, is_virtual, zones
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding


def virtual(now: Readings) -> Check:
    """Tell a virtual machine from a real one."""
    key, title, info = "virtual", "virtual", now.files.text("proc/cpuinfo")
    if info is None:
        return Check.from_findings(key, title, unknown="there is no /proc/cpuinfo")
    findings: tuple[Finding, ...] = ()
    is_virtual = any(
        line.startswith("flags") and "hypervisor" in line.split() for line in info.splitlines()
    )
    if is_virtual:
        findings = (
            Finding(
                id="virtual-machine",
                severity="info",
                title="This is a virtual machine",
                evidence="The processor has the hypervisor flag; neighbours, clocks and heat of "
                "the host cannot be seen from here.",
                remedy="Repeat at another time before trusting a small difference.",
            ),
        )
    return Check.from_findings(key, title, "yes" if is_virtual else "no", findings)


def clock_source(now: Readings) -> Check:
    """Look for a clock that is slow to read or coarse."""
    source = now.files.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    findings = []
    if source in ("hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"):
        findings.append(
            Finding(
                id="clock-source",
                severity="serious",
                title="The kernel's clock is slow to read",
                evidence=f"Clock source {source}: each reading is a system call of a microsecond.",
                remedy="Find in dmesg why the TSC was given up; boot with tsc=reliable if it is.",
            )
        )
    if now.timer > 1e-6:
        findings.append(
            Finding(
                id="timer-coarse",
                severity="warning",
                title="The timer is coarse",
                evidence=f"Two readings differ by {units.time(now.timer, 3)} at least.",
                remedy="Time calls of a hundred times that, by larger batches.",
            )
        )
    return Check.from_findings(
        "clock",
        "clock",
        ", ".join(filter(None, [source, f"steps of {units.time(now.timer, 2)}"])),
        tuple(findings),
        "" if source else "the kernel does not name its clock source",
    )


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
