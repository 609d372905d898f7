"""Counters and memory limits of processes of this machine; None where it does not show them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from torchgauge.device.counters import READ_ERRORS, memory_total
from torchgauge.device.cpu import SystemFiles, least_quota

_PROCESSES = Path("/proc")
Scheduled = tuple[dict[str, float], float | None]


class ProcessReading(NamedTuple):
    """A process at a moment: seconds and bytes since its start, and the bytes of memory it has.

    `waiting` are the seconds in which its threads were ready and had no core, `running` those in
    which they ran, of each thread in `threads`.
    """

    cpu: float
    memory: int | None
    read: int | None
    written: int | None
    waiting: float | None
    running: float | None
    threads: Mapping[str, float] = {}


def listening(port: int) -> tuple[int, ...]:
    """Return the processes that listen on a TCP port, and those that they started.

    None are returned where the system does not tell whose a socket is.
    """
    numbers = []
    with contextlib.suppress(*READ_ERRORS):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            if listens and connection.pid is not None:
                numbers.append(connection.pid)
    return with_children(numbers)


def with_children(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return processes, and those that they started."""
    family: dict[int, None] = {}
    for number in numbers:
        family[number] = None
        with contextlib.suppress(*READ_ERRORS):
            children = psutil.Process(number).children(recursive=True)
            family |= dict.fromkeys(child.pid for child in children)
    return tuple(family)


def read_process(number: int) -> ProcessReading | None:
    """Return a reading of a process; None where it has ended or may not be seen."""
    try:
        process = psutil.Process(number)
        with process.oneshot():
            times = process.cpu_times()
            traffic = process.io_counters() if hasattr(process, "io_counters") else None
    except READ_ERRORS:
        return None
    threads, waiting = scheduled(number)
    return ProcessReading(
        cpu=float(times.user + times.system),
        memory=_memory(number, process),
        read=getattr(traffic, "read_bytes", None),
        written=getattr(traffic, "write_bytes", None),
        waiting=waiting,
        running=None if waiting is None else sum(threads.values()),
        threads=threads,
    )


def cores_of(number: int, files: SystemFiles | None = None) -> float | None:
    """Return the cores that a process may use, by its affinity and its cgroup's quota."""
    try:
        cores = float(len(os.sched_getaffinity(number)))
    except (AttributeError, OSError):
        return None
    return min(cores, least_quota(files, number) or cores)


def memory_of(number: int, files: SystemFiles | None = None) -> int | None:
    """Return the bytes that a process may use, by its cgroups and the machine."""
    limits = [room.limit for room in memory_rooms(files, number)]
    return min(limits, default=None) or memory_total()


def _memory(number: int, process: psutil.Process) -> int | None:
    """Return its share of memory (PSS), else what is resident: both are bytes."""
    try:
        for line in (_PROCESSES / str(number) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return int(process.memory_info().rss)
    except READ_ERRORS:
        return None


def scheduled(number: int) -> Scheduled:
    """Return the seconds that each thread of a process ran, and all waited for a core (Linux)."""
    threads, waiting = {}, 0
    try:
        for thread in (_PROCESSES / str(number) / "task").iterdir():
            ran, waited, _ = (thread / "schedstat").read_text().split()
            threads[thread.name], waiting = int(ran) * 1e-9, waiting + int(waited)
    except (OSError, ValueError):
        return {}, None
    return threads, waiting * 1e-9


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
