"""CPU, memory and I/O counters of the machine and its processes; None where not available.

Only it and `process_counters` use psutil, which raises what it meets: in a container that hides
/proc, or in a sandbox that lets no process see another, nearly every one of its calls does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

T = TypeVar("T")

_PROCESS = Path("/proc/self")
# What psutil raises where a file is missing, unreadable or malformed.
READ_ERRORS = (
    psutil.Error, OSError, RuntimeError, AttributeError, LookupError, ValueError,
)  # fmt: skip


class MachineTimes(NamedTuple):
    """Seconds of all cores since boot: in all, busy in this system, stolen from it.

    `stolen` is None where the system does not count it.
    """

    total: float
    busy: float
    stolen: float | None


class ProcessTimes(NamedTuple):
    """CPU seconds of a process: its `own`, and those of its `children` that have ended."""

    name: str
    parent: int
    own: float
    children: float


def _read_or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except READ_ERRORS:
        return None


def machine_times() -> MachineTimes | None:
    """Return all cores' time since boot."""
    times = _read_or_none(psutil.cpu_times)
    if times is None:
        return None
    stolen = getattr(times, "steal", None)
    idle = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is part of user time already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return MachineTimes(total, total - idle - (stolen or 0.0), stolen)


def own_time() -> float:
    """Return the CPU seconds that this process has spent, in the ticks of the machine's times."""
    times = os.times()
    return times.user + times.system


def own_time_with_children() -> float:
    """Return the CPU seconds of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def memory_total() -> int | None:
    """Return the machine's memory in bytes."""
    memory = _read_or_none(psutil.virtual_memory)
    if memory is not None:
        return int(memory.total)
    return _read_or_none(lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def memory_available() -> int | None:
    """Return the bytes that could be allocated now."""
    memory = _read_or_none(psutil.virtual_memory)
    return None if memory is None else int(memory.available)


def resident() -> int | None:
    """Return the bytes of this process that are in memory."""
    memory = _read_or_none(lambda: psutil.Process().memory_info())
    return None if memory is None else int(memory.rss)


def highest_resident() -> int | None:
    """Return the most bytes of this process that were in memory since it started, on Linux."""
    return _status_field(_PROCESS, "VmHWM")


@dataclasses.dataclass
class Resident:
    """Resident bytes of the process before, and the highest while watched; None is unknown."""

    before: int | None = None
    peak: int | None = None


@contextlib.contextmanager
def watched_resident(process: Path = _PROCESS) -> Iterator[Resident]:
    """Watch the process's resident set.

    Linux keeps the highest value itself (VmHWM), and starts anew when a 5 is written to
    clear_refs. Elsewhere, or where that is not allowed, the peak stays None: reading the present
    value over and over would miss short peaks.
    """
    watched = Resident(before=resident())
    try:
        (process / "clear_refs").write_text("5")
    except OSError:
        yield watched
        return
    watched.before = before = _status_field(process, "VmRSS")
    yield watched
    highest = _status_field(process, "VmHWM")
    if highest is not None and before is not None:
        # The kernel counts per processor and sums up now and then: a step that needs nothing new
        # may end a little below its start.
        watched.peak = max(highest, before)


def _status_field(process: Path, name: str) -> int | None:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return None
    words = dict(line.split(":", 1) for line in lines if ":" in line).get(name, "").split()
    return int(words[0]) * 1024 if words else None  # "kB" in this file are KiB


def data_segment() -> int | None:
    """Return the bytes of this process that Linux holds against RLIMIT_DATA."""
    size = _read_or_none(lambda: psutil.Process().memory_info().data)
    return None if size is None else int(size)


def logical_cores() -> int:
    """Return the cores that the system shows; one at least."""
    return _read_or_none(psutil.cpu_count) or os.cpu_count() or 1


def physical_cores() -> int | None:
    """Return the cores without those that share another's units."""
    return _read_or_none(lambda: psutil.cpu_count(logical=False))


def network() -> tuple[int, int] | tuple[None, None]:
    """Return the bytes sent and received by all processes, or by the container's."""
    traffic = _read_or_none(psutil.net_io_counters)
    return (None, None) if traffic is None else (traffic.bytes_sent, traffic.bytes_recv)


def own_io() -> Any:
    """Return psutil's counters of what this process read and wrote."""
    return _read_or_none(lambda: psutil.Process().io_counters())


def process_start() -> float | None:
    """Return when this process was started, in seconds since 1970."""
    return _read_or_none(lambda: float(psutil.Process().create_time()))


def other_processes() -> Iterator[tuple[tuple[int, float], ProcessTimes]]:
    """Yield the CPU times of each other process, keyed by its pid and start time."""
    for process in _read_or_none(lambda: list(psutil.process_iter())) or ():
        if process.pid != os.getpid():
            times = _read_or_none(functools.partial(_process_times, process))
            if times is not None:
                yield times


def _process_times(process: psutil.Process) -> tuple[tuple[int, float], ProcessTimes]:
    with process.oneshot():
        times = process.cpu_times()
        ended = getattr(times, "children_user", 0.0), getattr(times, "children_system", 0.0)
        own = float(times.user + times.system)
        key = (process.pid, process.create_time())
        return key, ProcessTimes(process.name(), process.ppid(), own, sum(ended))
