"""The list of all checks, and of those quick enough for each record."""

from __future__ import annotations

from collections.abc import Callable

from torchgauge import units
from torchgauge.device.checks import gpu, machine, software, threads
from torchgauge.device.checks.activity import watch
from torchgauge.device.checks.check import Looking, Observation, check
from torchgauge.device.checks.readings import Readings, gpus, read_inputs
from torchgauge.device.cpu import SystemFiles
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding

# Background services take a few percent of a core; a quarter of one is a program at work.
MOST_OTHER = 0.25
MOST_OTHER_SHARE = 0.02
SERIOUS_SHARE = 0.25
MOST_STEAL = 0.01
SERIOUS_STEAL = 0.05
NOT_WATCHED = "not watched"
UNCOUNTED = "this system does not count it"


def most_other(cores: int) -> float:
    """Return the cores' worth of time that others may take on a machine at rest."""
    return max(MOST_OTHER, MOST_OTHER_SHARE * cores)


@check("load", "other load")
def other_load(now: Readings) -> Looking:
    """Look for processes that take the cores we measure on."""
    activity = now.activity
    if activity is None:
        return Observation(unknown=NOT_WATCHED)
    if activity.other is None:
        return Observation(unknown=UNCOUNTED)
    cores = now.logical_cores
    summary = f"{activity.other:.2f} of {cores} cores busy with others"
    if average := now.files.text("proc/loadavg"):
        summary += f"; load average {average.split()[0]}"
    if activity.other > most_other(cores):
        named = ", ".join(f"{c.name} (pid {c.pid}) {c.cores:.2f}" for c in activity.top)
        pressure = now.files.pressure("cpu")
        waited = f"; some task waited for a core {units.percent(pressure)} of 10 s" * bool(pressure)
        yield Finding(
            id="other-load",
            severity="serious" if activity.other >= SERIOUS_SHARE * cores else "warning",
            title="Other processes use the cores",
            evidence=f"{activity.other:.2f} of {cores} cores over "
            f"{units.time(activity.seconds, 2)}: "
            + (named or "no process that is visible to this one")
            + waited,
            remedy="Stop them, or measure when they are done.",
        )
    if activity.runnable is not None and activity.runnable > len(now.usable):
        yield Finding(
            id="run-queue",
            severity="warning",
            title="More tasks want to run than there are cores",
            evidence=f"{activity.runnable} runnable tasks on {len(now.usable)} cores.",
            remedy="Stop them, or measure when they are done.",
        )
    return Observation(summary)


@check("steal", "steal time")
def steal(now: Readings) -> Looking:
    """Look for time that the hypervisor gave to other guests."""
    activity = now.activity
    if activity is None:
        return Observation(unknown=NOT_WATCHED)
    if activity.steal is None:
        return Observation(unknown=UNCOUNTED)
    if activity.steal > MOST_STEAL:
        yield Finding(
            id="steal-time",
            severity="serious" if activity.steal > SERIOUS_STEAL else "warning",
            title="The hypervisor gives cores to other machines",
            evidence=f"{units.percent(activity.steal)} of the cores' time was stolen over "
            f"{units.time(activity.seconds, 2)}.",
            remedy="Use a dedicated host, or more processes over a longer time.",
        )
    return Observation(f"{units.percent(activity.steal)} of the cores' time")


# Checks of the present moment and process, which need not wait for anything.
PRESENT: tuple[Callable[[Readings], Check], ...] = (
    threads.quota,
    threads.threads,
    threads.affinity,
    machine.governor,
    machine.boost,
    machine.heat,
    machine.battery,
    threads.numa,
    machine.swap,
    machine.pressure,
    machine.clock_source,
    machine.virtual,
    machine.energy,
    software.python,
    software.torch_build,
    software.switches,
)
ALL_CHECKS = (other_load, steal, *PRESENT, gpu.gpu)


def checks(now: Readings) -> tuple[Check, ...]:
    """Return the answer of every check."""
    return tuple(check(now) for check in ALL_CHECKS)


def examine(files: SystemFiles | None = None) -> tuple[Check, ...]:
    """Watch the machine for a second, and return the answer of every check."""
    files = files or SystemFiles()
    return checks(read_inputs(files, watch(files), gpus(files)))


def environment_findings() -> tuple[Finding, ...]:
    """Return what is wrong with this machine and process at this moment, in milliseconds.

    Load, steal time and GPUs are left out: a measurement watches them while it lasts.
    """
    now = read_inputs()
    return tuple(finding for check in PRESENT for finding in check(now).findings)
