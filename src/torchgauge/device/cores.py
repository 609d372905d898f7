"""Cores that this process may use, by the machine, its affinity and its cgroup."""

from __future__ import annotations

import math
import os
from pathlib import Path

from torchgauge.device.counters import logical_cores
from torchgauge.device.system_files import SystemFiles

CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(affinity())


def affinity() -> tuple[int, ...]:
    """Return the numbers of the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(logical_cores()))


def cores_granted() -> int:
    """Return how many cores' worth of time this process can get, a cgroup's quota rounded up."""
    quota = least_quota()
    return usable_cores() if quota is None else min(usable_cores(), math.ceil(quota))


def least_quota(files: SystemFiles | None = None, process: int | str = "self") -> float | None:
    """Return the least quota of a process's cgroup and those above it, in cores."""
    folders = (files or SystemFiles()).cgroups(process=process)
    quotas = [cpu_quota(folder) for folder in folders]
    return min((quota for quota in quotas if quota is not None), default=None)


def cpu_quota(root: Path = CGROUPS) -> float | None:
    """Return the cores that the cgroup at `root` (v2 or v1) grants, None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        for folder in (root, root / "cpu"):
            try:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text().strip()
                break
            except (OSError, ValueError):  # a name that no file can have
                continue
        else:
            return None
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None
    return int(quota) / int(period)
