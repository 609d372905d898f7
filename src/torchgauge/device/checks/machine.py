"""Checks of the clock source, of virtualization and of energy counters."""

from __future__ import annotations

from torchgauge import units
from torchgauge.device.checks.activity import throttle_count
from torchgauge.device.checks.check import Looking, Observation, check
from torchgauge.device.checks.readings import Readings
from torchgauge.device.energy import DENIED, NO_COUNTERS, VIRTUAL, is_virtual, zones
from torchgauge.records.finding import Finding


@check("virtual", "virtual")
def virtual(now: Readings) -> Looking:
    """Tell a virtual machine from a real one."""
    info = now.files.text("proc/cpuinfo")
    if info is None:
        return Observation(unknown="there is no /proc/cpuinfo")
    is_virtual = any(
        line.startswith("flags") and "hypervisor" in line.split() for line in info.splitlines()
    )
    if is_virtual:
        yield Finding(
            id="virtual-machine",
            severity="info",
            title="This is a virtual machine",
            evidence="The processor has the hypervisor flag; neighbours, clocks and heat of "
            "the host cannot be seen from here.",
            remedy="Repeat at another time before trusting a small difference.",
        )
    return Observation("yes" if is_virtual else "no")


@check("clock", "clock")
def clock_source(now: Readings) -> Looking:
    """Look for a clock that is slow to read or coarse."""
    source = now.files.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source in ("hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"):
        yield Finding(
            id="clock-source",
            severity="serious",
            title="The kernel's clock is slow to read",
            evidence=f"Clock source {source}: each reading is a system call of a microsecond.",
            remedy="Find in dmesg why the TSC was given up; boot with tsc=reliable if it is.",
        )
    if now.timer > 1e-6:
        yield Finding(
            id="timer-coarse",
            severity="warning",
            title="The timer is coarse",
            evidence=f"Two readings differ by {units.time(now.timer, 3)} at least.",
            remedy="Time calls of a hundred times that, by larger batches.",
        )
    return Observation(
        ", ".join(filter(None, [source, f"steps of {units.time(now.timer, 2)}"])),
        "" if source else "the kernel does not name its clock source",
    )


@check("energy", "energy")
def energy(now: Readings) -> Looking:
    """Look for processors' energy counters, which `--energy` reads; GPUs have their own."""
    if is_virtual(now.files):
        return Observation(unknown=VIRTUAL)
    folders = list(zones(now.files))
    if not folders:
        return Observation(unknown=NO_COUNTERS)
    closed = [folder for folder in folders if now.files.text(f"{folder}/energy_uj") is None]
    if closed:
        yield Finding(
            id="energy-denied",
            severity="info",
            title="Energy counters cannot be read by this user",
            evidence=f"{len(closed)} of {len(folders)} counters of processors.",
            remedy=f"{DENIED}. Fine steps of power tell other programs' secrets (PLATYPUS): "
            "not on a shared machine.",
        )
    readable = len(folders) - len(closed)
    return Observation(f"{readable} of {len(folders)} counters")


LEAST_AVAILABLE = 0.05
MOST_PRESSURE = 0.01
SERIOUS_PRESSURE = 0.10


@check("swap", "swap")
def swap(now: Readings) -> Looking:
    """Look for pages that move to or from swap, and for what is there."""
    memory = now.files.numbers("proc/meminfo")
    if "SwapTotal" not in memory or "SwapFree" not in memory:
        return Observation(unknown="there is no /proc/meminfo")
    used = 1024 * (memory["SwapTotal"] - memory["SwapFree"])
    moved = now.activity.swapped if now.activity is not None else None
    if used or moved:
        moving = f"; {moved:,} pages moved while doctor watched" if moved else ""
        yield Finding(
            id="swapping",
            severity="serious" if moved else "info",
            title="The machine is swapping" if moved else "Some memory is swapped out",
            evidence=f"{units.size(used, 3)} in swap{moving}.",
            remedy="Free memory, or use a smaller batch (and swapoff -a on test machines).",
        )
    summary = f"{units.size(used, 3)} in use" if memory["SwapTotal"] else "none"
    return Observation(summary)


@check("memory", "memory")
def pressure(now: Readings) -> Looking:
    """Look for tasks that wait for memory, and for memory that is nearly used up."""
    memory = now.files.numbers("proc/meminfo")
    waiting = now.files.pressure("memory")
    if waiting is not None and waiting > MOST_PRESSURE:
        yield Finding(
            id="memory-pressure",
            severity="serious" if waiting > SERIOUS_PRESSURE else "warning",
            title="Tasks wait for memory",
            evidence=f"Some task waited {units.percent(waiting)} of the last 10 s (PSI).",
            remedy="Free memory, or use a smaller batch.",
        )
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    if total and available is not None and available < LEAST_AVAILABLE * total:
        yield Finding(
            id="memory-low",
            severity="warning",
            title="Memory is nearly used up",
            evidence=f"{units.size(1024 * available, 3)} of {units.size(1024 * total, 3)} "
            "are available.",
            remedy="Stop what uses it; the system reclaims pages while you measure.",
        )
    summary = f"{units.size(1024 * available, 3)} available" if available is not None else ""
    missing = [
        "" if memory else "there is no /proc/meminfo",
        "the kernel counts no pressure (PSI)" if waiting is None else "",
    ]
    return Observation(summary, "; ".join(filter(None, missing)))


POLICY = "sys/devices/system/cpu/cpu[0-9]*/cpufreq"
# Under these drivers "powersave" follows the load; under the others it is the lowest clock.
ADAPTIVE = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
HIDDEN = "not shown here (usual in a virtual machine)"


@check("governor", "frequency")
def governor(now: Readings) -> Looking:
    """Look for a policy that lowers the clocks, and for a limit below what the cores can do."""
    governors = now.files.texts(f"{POLICY}/scaling_governor")
    if not governors:
        return Observation(unknown=HIDDEN)
    drivers = set(now.files.texts(f"{POLICY}/scaling_driver").values())
    names = sorted(set(governors.values()))
    summary = ", ".join(names) + (f" ({', '.join(sorted(drivers))})" if drivers else "")
    if slow := [name for name in names if name != "performance"]:
        lowest = "powersave" in slow and not drivers & set(ADAPTIVE)
        cores = sum(name != "performance" for name in governors.values())
        yield Finding(
            id="governor",
            severity="serious" if lowest else "warning",
            title="The cores run at their lowest clock"
            if lowest
            else "The cores' clock follows the load",
            evidence=f"Governor {summary} on {cores} of {len(governors)} cores.",
            remedy="sudo cpupower frequency-set --governor performance",
        )
    if limited := _limited(now):
        yield Finding(
            id="clock-limited",
            severity="warning",
            title="The cores are kept below their highest clock",
            evidence=limited,
            remedy="Fine if it is meant for steady clocks; else raise scaling_max_freq.",
        )
    return Observation(summary)


def _limited(now: Readings) -> str:
    allowed = now.files.texts(f"{POLICY}/scaling_max_freq")
    for path, text in allowed.items():
        able = now.files.text(path.replace("scaling_max_freq", "cpuinfo_max_freq")) or ""
        if text.isdecimal() and able.isdecimal() and int(text) < int(able):
            core = path.split("/")[4]
            return f"{core}: {int(text) / 1e6:.2f} of {int(able) / 1e6:.2f} GHz."
    return ""


@check("boost", "turbo")
def boost(now: Readings) -> Looking:
    """Look for clocks above the nominal one, which depend on heat and on the neighbours."""
    generic = now.files.text("sys/devices/system/cpu/cpufreq/boost")
    intel = now.files.text("sys/devices/system/cpu/intel_pstate/no_turbo")
    if generic is None and intel is None:
        return Observation(unknown=HIDDEN)
    on = intel == "0" if intel is not None else generic == "1"
    if on:
        yield Finding(
            id="boost",
            severity="info",
            title="Turbo is on",
            evidence="Clocks above the nominal one last as long as heat, power and the other "
            "cores' work allow.",
            remedy="For comparisons switch it off: no_turbo = 1 or cpufreq/boost = 0 "
            "in /sys/devices/system/cpu.",
        )
    return Observation("on" if on else "off")


@check("heat", "heat")
def heat(now: Readings) -> Looking:
    """Look for cores that were slowed down for their heat."""
    total = throttle_count(now.files)
    if total is None:
        return Observation(unknown=HIDDEN)
    fresh = now.activity.throttled if now.activity is not None else None
    if total:
        during = f", {fresh} of them while doctor watched" if fresh else ""
        yield Finding(
            id="throttled",
            severity="serious" if fresh else "info",
            title="Cores are too hot and slowed down" if fresh else "Cores have been too hot",
            evidence=f"Slowed down {total:,} times since boot{during}.",
            remedy="Let the machine cool down, improve its cooling, or fix lower clocks.",
        )
    return Observation(f"slowed down {total:,} times since boot")


@check("battery", "power supply")
def battery(now: Readings) -> Looking:
    """Look for a laptop that saves its battery."""
    supplies = now.files.texts("sys/class/power_supply/*/online")
    mains = {
        path: text
        for path, text in supplies.items()
        if now.files.text(path.replace("online", "type")) == "Mains"
    }
    if mains and "1" not in mains.values():
        yield Finding(
            id="on-battery",
            severity="warning",
            title="The machine runs on its battery",
            evidence=f"No mains: {', '.join(path.split('/')[-2] for path in mains)} offline.",
            remedy="Plug it in.",
        )
    if not mains and now.files.text("proc/self/cgroup") is None:
        return Observation(unknown="this system does not report it")
    return Observation("mains" if mains else "no battery")
