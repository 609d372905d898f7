"""What happens on the machine during a stretch of time, from counters read twice."""

from __future__ import annotations

import dataclasses
import time
from typing import NamedTuple

import psutil

from torchgauge.device.load import machine_times, process_time
from torchgauge.device.system_files import SystemFiles

THROTTLE = "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
SHOWN = 3
SWAPPED = ("pswpin", "pswpout")


@dataclasses.dataclass(frozen=True)
class Consumer:
    """Another process: `cores` is its CPU time per second, its ended children's with it."""

    name: str
    pid: int
    cores: float


@dataclasses.dataclass(frozen=True)
class Activity:
    """One stretch of `seconds`; None where the system does not tell.

    `other`: cores' worth of time that other processes took, the `top` ones named. `steal`: fraction
    of all cores' time that the hypervisor gave to others. `runnable`: tasks that ran or waited for
    a core at its end, this one left out. `swapped`: pages moved from or to swap. `throttled`: how
    often cores were slowed down for their heat.
    """

    seconds: float
    other: float
    top: tuple[Consumer, ...] = ()
    steal: float | None = None
    runnable: int | None = None
    swapped: int | None = None
    throttled: int | None = None


class Spent(NamedTuple):
    """CPU seconds of a process: its `own`, and those of its `children` that have ended."""

    name: str
    parent: int
    own: float
    children: float


@dataclasses.dataclass(frozen=True)
class Counters:
    """The system's counters at one moment; seconds of all cores together."""

    total: float
    busy: float
    steal: float | None
    own: float
    processes: dict[tuple[int, float], Spent]
    swapped: int | None
    throttled: int | None


def watch(files: SystemFiles, seconds: float = 1.0) -> Activity:
    """Do nothing for `seconds`, and return what others did meanwhile."""
    before = counters(files)
    time.sleep(seconds)
    return between(before, counters(files), psutil.cpu_count() or 1, runnable(files))


def between(before: Counters, after: Counters, cores: int, runnable: int | None = None) -> Activity:
    """Return what happened between two readings on a machine of so many cores."""
    elapsed = max(after.total - before.total, 1e-9)
    seconds = elapsed / cores
    others = (after.busy - before.busy) - (after.own - before.own)
    steals = (before.steal, after.steal)
    consumers = _consumers(before.processes, after.processes, seconds)
    return Activity(
        seconds=seconds,
        other=max(others, 0.0) / seconds,
        top=tuple(c for c in consumers[:SHOWN] if c.cores >= 0.01),
        steal=None if None in steals else _growth(*steals) / elapsed,
        runnable=runnable,
        swapped=_count(before.swapped, after.swapped),
        throttled=_count(before.throttled, after.throttled),
    )


def _consumers(
    before: dict[tuple[int, float], Spent], after: dict[tuple[int, float], Spent], seconds: float
) -> list[Consumer]:
    # A child that ended hands its whole time to its parent: what it had spent before is no growth.
    old: dict[int, float] = {}
    for key in before.keys() - after.keys():
        gone = before[key]
        old[gone.parent] = old.get(gone.parent, 0.0) + gone.own + gone.children
    consumers = []
    for key, now in after.items():
        # One that began meanwhile spent all its time meanwhile.
        then = before.get(key, Spent(now.name, now.parent, 0.0, 0.0))
        children = max(now.children - then.children - old.get(key[0], 0.0), 0.0)
        consumers.append(Consumer(now.name, key[0], (now.own - then.own + children) / seconds))
    return sorted(consumers, key=lambda consumer: -consumer.cores)


def _growth(before: float | None, after: float | None) -> float:
    return max((after or 0.0) - (before or 0.0), 0.0)


def _count(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def counters(files: SystemFiles) -> Counters:
    """Return the counters now."""
    own = psutil.Process()
    processes = {}
    for process in psutil.process_iter():
        if process.pid == own.pid:
            continue
        try:
            with process.oneshot():
                key = (process.pid, process.create_time())
                times = process.cpu_times()
                ended = getattr(times, "children_user", 0.0), getattr(times, "children_system", 0.0)
                own_time = float(times.user + times.system)
                processes[key] = Spent(process.name(), process.ppid(), own_time, sum(ended))
        except psutil.Error:
            continue
    swapped = files.numbers("proc/vmstat")
    total, busy, steal = machine_times()
    return Counters(
        total=total,
        busy=busy,
        steal=steal,
        own=process_time(own),
        processes=processes,
        swapped=sum(swapped[n] for n in SWAPPED) if set(SWAPPED) <= set(swapped) else None,
        throttled=throttle_count(files),
    )


def throttle_count(files: SystemFiles) -> int | None:
    """Return how often cores were slowed down for their heat since boot; None where not told."""
    counts = [text for text in files.texts(THROTTLE).values() if text.isdecimal()]
    return sum(map(int, counts)) if counts else None


def runnable(files: SystemFiles) -> int | None:
    """Return the tasks that run or wait for a core now, this one left out."""
    words = (files.text("proc/loadavg") or "").split()
    if len(words) < 4 or not (first := words[3].partition("/")[0]).isdecimal():
        return None
    return max(int(first) - 1, 0)
