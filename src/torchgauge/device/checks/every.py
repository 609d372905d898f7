"""The list of all checks, and of those quick enough for each record."""

from __future__ import annotations

from collections.abc import Callable

from torchgauge.device.checks import frequency, gpu, machine, memory, other_load, software, threads
from torchgauge.device.checks.activity import watch
from torchgauge.device.checks.gpu_state import gpus
from torchgauge.device.checks.readings import Readings, read
from torchgauge.device.system_files import SystemFiles
from torchgauge.records.doctor import Check
from torchgauge.records.finding import Finding

# Checks of the present moment and process, which need not wait for anything.
PRESENT: tuple[Callable[[Readings], Check], ...] = (
    threads.quota,
    threads.threads,
    threads.affinity,
    frequency.governor,
    frequency.boost,
    frequency.heat,
    frequency.battery,
    threads.numa,
    memory.swap,
    memory.pressure,
    machine.clock_source,
    machine.virtual,
    machine.energy,
    software.python,
    software.torch_build,
    software.switches,
)
ALL_CHECKS = (other_load.other_load, other_load.steal, *PRESENT, gpu.gpu)


def checks(now: Readings) -> tuple[Check, ...]:
    """Return the answer of every check."""
    return tuple(check(now) for check in ALL_CHECKS)


def examine(files: SystemFiles | None = None) -> tuple[Check, ...]:
    """Watch the machine for a second, and return the answer of every check."""
    files = files or SystemFiles()
    return checks(read(files, watch(files), gpus(files)))


def environment_findings() -> tuple[Finding, ...]:
    """Return what is wrong with this machine and process at this moment, in milliseconds.

    Load, steal time and GPUs are left out: a measurement watches them while it lasts.
    """
    now = read()
    return tuple(finding for check in PRESENT for finding in check(now).findings)
