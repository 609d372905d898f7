"""What the operating system tells of the machine and of its processes; None where it does not.

The only user of psutil, which raises what it meets: in a container that hides /proc, or in a
sandbox that lets no process see another, nearly every one of its calls does.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import psutil

T = TypeVar("T")

# What psutil raises where a file is not there, may not be read, or holds something else.
UNTOLD = (
    psutil.Error, OSError, RuntimeError, AttributeError, LookupError, ValueError,
)  # fmt: skip


class MachineTimes(NamedTuple):
    """Seconds of all cores since boot: in all, busy in this system, stolen from it.

    `stolen` is None where the system does not count it.
    """

    total: float
    busy: float
    stolen: float | None


class Spent(NamedTuple):
    """CPU seconds of a process: its `own`, and those of its `children` that have ended."""

    name: str
    parent: int
    own: float
    children: float


def _told(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except UNTOLD:
        return None


def machine_times() -> MachineTimes | None:
    """Return all cores' time since boot."""
    times = _told(psutil.cpu_times)
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
    found = _told(psutil.virtual_memory)
    if found is not None:
        return int(found.total)
    return _told(lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def memory_available() -> int | None:
    """Return the bytes that could be allocated now."""
    found = _told(psutil.virtual_memory)
    return None if found is None else int(found.available)


def resident() -> int | None:
    """Return the bytes of this process that are in memory."""
    found = _told(lambda: psutil.Process().memory_info())
    return None if found is None else int(found.rss)


def data_segment() -> int | None:
    """Return the bytes of this process that Linux holds against RLIMIT_DATA."""
    found = _told(lambda: psutil.Process().memory_info().data)
    return None if found is None else int(found)


def logical_cores() -> int:
    """Return the cores that the system shows; one at least."""
    return _told(psutil.cpu_count) or os.cpu_count() or 1


def physical_cores() -> int | None:
    """Return the cores without those that share another's units."""
    return _told(lambda: psutil.cpu_count(logical=False))


def network() -> tuple[int, int] | tuple[None, None]:
    """Return the bytes sent and received by all processes, or by the container's."""
    found = _told(psutil.net_io_counters)
    return (None, None) if found is None else (found.bytes_sent, found.bytes_recv)


def own_io() -> Any:
    """Return psutil's counters of what this process read and wrote."""
    return _told(lambda: psutil.Process().io_counters())


def started() -> float | None:
    """Return when this process was started, in seconds since 1970."""
    return _told(lambda: float(psutil.Process().create_time()))


def other_processes() -> Iterator[tuple[tuple[int, float], Spent]]:
    """Yield what each other process has spent, by its number and its start."""
    for process in _told(lambda: list(psutil.process_iter())) or ():
        if process.pid != os.getpid():
            spent = _told(functools.partial(_spent, process))
            if spent is not None:
                yield spent


def _spent(process: psutil.Process) -> tuple[tuple[int, float], Spent]:
    with process.oneshot():
        times = process.cpu_times()
        ended = getattr(times, "children_user", 0.0), getattr(times, "children_system", 0.0)
        own = float(times.user + times.system)
        key = (process.pid, process.create_time())
        return key, Spent(process.name(), process.ppid(), own, sum(ended))
