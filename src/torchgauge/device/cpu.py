"""The CPU: its cores, name, clocks, and what the system's files say of it."""

from __future__ import annotations

import contextlib
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class SystemFiles:
    """Reads /proc and /sys below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        """Return a file's text without the white space around it; None where it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def texts(self, pattern: str) -> dict[str, str]:
        """Return the readable files that match, by path below the root."""
        texts_by_path = {}
        for file in sorted(self.root.glob(pattern)):
            name = str(file.relative_to(self.root))
            if (text := self.text(name)) is not None:
                texts_by_path[name] = text
        return texts_by_path

    def numbers(self, path: str) -> dict[str, int]:
        """Return a file of `name value` lines, such as /proc/meminfo (in its own units)."""
        values = {}
        for line in (self.text(path) or "").splitlines():
            words = line.replace(":", " ").split()
            if len(words) >= 2 and words[1].isdecimal():
                values[words[0]] = int(words[1])
        return values

    def pressure(self, resource: str) -> float | None:
        """Return the fraction of the last 10 s in which some task waited for `resource` (PSI)."""
        for line in (self.text(f"proc/pressure/{resource}") or "").splitlines():
            kind, *fields = line.split() or [""]
            values = dict(field.split("=", 1) for field in fields if "=" in field)
            if kind == "some" and re.fullmatch(r"\d+(\.\d+)?", values.get("avg10", ""), re.ASCII):
                return float(values["avg10"]) / 100
        return None

    def cgroups(self, controller: str = "cpu", process: int | str = "self") -> list[Path]:
        """Return the folders that may limit a process: its cgroup and those above it."""
        mount = self.root / "sys/fs/cgroup"
        folders = [mount]
        for line in (self.text(f"proc/{process}/cgroup") or "").splitlines():
            _, _, controllers_and_path = line.partition(":")
            controllers, _, path = controllers_and_path.partition(":")
            if controllers and controller not in controllers.split(","):
                continue
            parts = [part for part in path.split("/") if part not in ("", "..")]
            own = mount / controller if controllers else mount
            folders += [own.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
        return folders


CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(affinity())


def affinity() -> tuple[int, ...]:
    """Return the numbers of the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    from torchgauge.device.counters import logical_cores  # psutil's import takes long

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


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE = 64 * 2**20
FLUSH_FACTOR = 2


def last_level_cache(root: Path = CACHES) -> int | None:
    """Return the size of the largest cache of the first core in bytes, None where not told."""
    sizes = []
    for file in root.glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=None)


class Cpu:
    """The CPU as torch sees it.

    Where the process uses a GPU, a callable without tensors to show for it may launch work there:
    such a process waits for its GPU too.
    """

    name = "cpu"

    def __init__(self) -> None:
        import torch

        self.asynchronous: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._scratch: torch.Tensor | None = None

    def current(self) -> contextlib.AbstractContextManager[object]:
        """Do nothing: there is one CPU."""
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Wait for the GPU where the process uses one; CPU calls are synchronous."""
        if self.asynchronous:
            import torch

            torch.cuda.synchronize()

    def timer(self) -> None:
        """Return None: the host clock times CPU work."""
        return

    def flush_cache(self) -> None:
        """Overwrite a buffer twice the size of the last-level cache."""
        import torch

        if self._scratch is None:
            size = FLUSH_FACTOR * (last_level_cache() or UNKNOWN_CACHE)
            self._scratch = torch.empty(size, dtype=torch.uint8)
        self._scratch.fill_(1)
