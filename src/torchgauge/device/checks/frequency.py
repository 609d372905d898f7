"""Clocks that change during a measurement: governor, boost, heat, battery."""

from __future__ import annotations

from torchgauge.device.checks.activity import throttle_count
from torchgauge.device.checks.readings import Readings
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding

POLICY = "sys/devices/system/cpu/cpu[0-9]*/cpufreq"
# Under these drivers "powersave" follows the load; under the others it is the lowest clock.
ADAPTIVE = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
HIDDEN = "not shown here (usual in a virtual machine)"


def governor(now: Readings) -> Check:
    """Look for a policy that lowers the clocks, and for a limit below what the cores can do."""
    key, title = "governor", "frequency"
    governors = now.files.texts(f"{POLICY}/scaling_governor")
    if not governors:
        return Check.from_findings(key, title, unknown=HIDDEN)
    drivers = set(now.files.texts(f"{POLICY}/scaling_driver").values())
    names = sorted(set(governors.values()))
    summary = ", ".join(names) + (f" ({', '.join(sorted(drivers))})" if drivers else "")
    findings = []
    if slow := [name for name in names if name != "performance"]:
        lowest = "powersave" in slow and not drivers & set(ADAPTIVE)
        cores = sum(name != "performance" for name in governors.values())
        findings.append(
            Finding(
                id="governor",
                severity="serious" if lowest else "warning",
                title="The cores run at their lowest clock"
                if lowest
                else "The cores' clock follows the load",
                evidence=f"Governor {summary} on {cores} of {len(governors)} cores.",
                remedy="sudo cpupower frequency-set --governor performance",
            )
        )
    if limited := _limited(now):
        findings.append(
            Finding(
                id="clock-limited",
                severity="warning",
                title="The cores are kept below their highest clock",
                evidence=limited,
                remedy="Fine if it is meant for steady clocks; else raise scaling_max_freq.",
            )
        )
    return Check.from_findings(key, title, summary, tuple(findings))


def _limited(now: Readings) -> str:
    allowed = now.files.texts(f"{POLICY}/scaling_max_freq")
    for path, text in allowed.items():
        able = now.files.text(path.replace("scaling_max_freq", "cpuinfo_max_freq")) or ""
        if text.isdecimal() and able.isdecimal() and int(text) < int(able):
            core = path.split("/")[4]
            return f"{core}: {int(text) / 1e6:.2f} of {int(able) / 1e6:.2f} GHz."
    return ""


def boost(now: Readings) -> Check:
    """Look for clocks above the nominal one, which depend on heat and on the neighbours."""
    key, title = "boost", "turbo"
    generic = now.files.text("sys/devices/system/cpu/cpufreq/boost")
    intel = now.files.text("sys/devices/system/cpu/intel_pstate/no_turbo")
    if generic is None and intel is None:
        return Check.from_findings(key, title, unknown=HIDDEN)
    on = intel == "0" if intel is not None else generic == "1"
    findings: tuple[Finding, ...] = ()
    if on:
        findings = (
            Finding(
                id="boost",
                severity="info",
                title="Turbo is on",
                evidence="Clocks above the nominal one last as long as heat, power and the other "
                "cores' work allow.",
                remedy="For comparisons switch it off: no_turbo = 1 or cpufreq/boost = 0 "
                "in /sys/devices/system/cpu.",
            ),
        )
    return Check.from_findings(key, title, "on" if on else "off", findings)


def heat(now: Readings) -> Check:
    """Look for cores that were slowed down for their heat."""
    key, title, total = "heat", "heat", throttle_count(now.files)
    if total is None:
        return Check.from_findings(key, title, unknown=HIDDEN)
    fresh = now.activity.throttled if now.activity is not None else None
    findings: tuple[Finding, ...] = ()
    if total:
        during = f", {fresh} of them while doctor watched" if fresh else ""
        findings = (
            Finding(
                id="throttled",
                severity="serious" if fresh else "info",
                title="Cores are too hot and slowed down" if fresh else "Cores have been too hot",
                evidence=f"Slowed down {total:,} times since boot{during}.",
                remedy="Let the machine cool down, improve its cooling, or fix lower clocks.",
            ),
        )
    return Check.from_findings(key, title, f"slowed down {total:,} times since boot", findings)


def battery(now: Readings) -> Check:
    """Look for a laptop that saves its battery."""
    supplies = now.files.texts("sys/class/power_supply/*/online")
    mains = {
        path: text
        for path, text in supplies.items()
        if now.files.text(path.replace("online", "type")) == "Mains"
    }
    findings: tuple[Finding, ...] = ()
    if mains and "1" not in mains.values():
        findings = (
            Finding(
                id="on-battery",
                severity="warning",
                title="The machine runs on its battery",
                evidence=f"No mains: {', '.join(path.split('/')[-2] for path in mains)} offline.",
                remedy="Plug it in.",
            ),
        )
    if not mains and now.files.text("proc/self/cgroup") is None:
        return Check.from_findings(
            "battery", "power supply", unknown="this system does not report it"
        )
    return Check.from_findings(
        "battery", "power supply", "mains" if mains else "no battery", findings
    )
