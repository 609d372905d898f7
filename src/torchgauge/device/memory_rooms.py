"""Memory limits at which Linux kills a process: of its cgroups, and of the machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from torchgauge.device.cpu import SystemFiles


@dataclasses.dataclass(frozen=True)
class MemoryRoom:
    """A limit in bytes that a process shares with others, by the kernel's file of it.

    Attributes:
        limit: Bytes.
        name: Whose it is, with the file: "the cgroup's memory.max".
        folder: Of the cgroup; None of the machine.
    """

    limit: int
    name: str
    folder: Path | None = None
    files: SystemFiles = dataclasses.field(default_factory=SystemFiles)

    def used(self) -> int | None:
        """Return the bytes in use that the kernel cannot take back; None where nothing tells.

        The page cache does not count, tmpfs and shared memory do.
        """
        if self.folder is None:
            free = self.files.numbers("proc/meminfo").get("MemAvailable")
            return None if free is None else self.limit - free * 1024
        usage = _number(self.folder / "memory.current")
        prefix, cache = "", "file"
        if usage is None:
            usage, prefix, cache = _number(self.folder / "memory.usage_in_bytes"), "total_", "cache"
        if usage is None:
            return None
        stat = self.files.numbers(str(self.folder / "memory.stat"))
        return usage - stat.get(prefix + cache, 0) + stat.get(f"{prefix}shmem", 0)

    def kills(self) -> int:
        """Return how many processes the kernel has killed for a cgroup's limit."""
        if self.folder is None:  # any program's
            return 0
        counts = [
            self.files.numbers(str(self.folder / name)).get("oom_kill", 0)
            for name in ("memory.events", "memory.oom_control")
        ]
        return sum(counts)


def memory_rooms(files: SystemFiles | None = None, process: int | str = "self") -> list[MemoryRoom]:
    """Return the limits that may kill a process or throttle it, the machine's last."""
    files = files or SystemFiles()
    total = files.numbers("proc/meminfo").get("MemTotal")
    machine = None if total is None else total * 1024
    rooms: dict[Path, MemoryRoom] = {}
    for group in files.cgroups("memory", process):
        for folder in (group, group / "memory"):
            for file in ("memory.max", "memory.high", "memory.limit_in_bytes"):
                limit = _number(folder / file)
                lowest = rooms[folder].limit if folder in rooms else machine
                # Without a limit v1 says more than any machine has.
                if limit is not None and (lowest is None or limit < lowest):
                    rooms[folder] = MemoryRoom(limit, f"the cgroup's {file}", folder, files)
    machine_rooms = (
        [] if machine is None else [MemoryRoom(machine, "this machine's memory", None, files)]
    )
    return [*rooms.values(), *machine_rooms]


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
