"""Activity of the machine over a stretch of time, from counters read twice."""

from __future__ import annotations

import dataclasses
import time

from torchgauge.device.counters import (
    ProcessTimes,
    logical_cores,
    machine_times,
    other_processes,
    own_time,
)
from torchgauge.device.cpu import SystemFiles

THROTTLE = "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
MOST_CONSUMERS = 3
SWAPPED = ("pswpin", "pswpout")


@dataclasses.dataclass(frozen=True)
class Consumer:
    """Another process: `cores` is its CPU time per second, its ended children's with it."""

    name: str
    pid: int
    cores: float


@dataclasses.dataclass(frozen=True)
class Activity:
    """One stretch of `seconds`; None where the system does not report it.

    `other`: cores' worth of time that other processes took, the `top` ones named. `steal`: fraction
    of all cores' time that the hypervisor gave to others. `runnable`: tasks that ran or waited for
    a core at its end, this one left out. `swapped`: pages moved from or to swap. `throttled`: how
    often cores were slowed down for their heat.
    """

    seconds: float
    other: float | None
    top: tuple[Consumer, ...] = ()
    steal: float | None = None
    runnable: int | None = None
    swapped: int | None = None
    throttled: int | None = None


@dataclasses.dataclass(frozen=True)
class Counters:
    """The system's counters at one moment; seconds of all cores together."""

    total: float | None
    busy: float | None
    steal: float | None
    own: float
    processes: dict[tuple[int, float], ProcessTimes]
    swapped: int | None
    throttled: int | None


def watch(files: SystemFiles, seconds: float = 1.0) -> Activity:
    """Do nothing for `seconds`, and return what others did meanwhile."""
    before = counters(files)
    time.sleep(seconds)
    after, now = counters(files), runnable(files)
    if before.total is None or after.total is None:
        return Activity(
            seconds,
            None,
            runnable=now,
            swapped=_count(before.swapped, after.swapped),
            throttled=_count(before.throttled, after.throttled),
        )
    return between(before, after, logical_cores(), now)


def between(before: Counters, after: Counters, cores: int, runnable: int | None = None) -> Activity:
    """Return what happened between two readings on a machine of `cores` cores."""
    elapsed = max(_growth(before.total, after.total), 1e-9)
    seconds = elapsed / cores
    other_seconds = _growth(before.busy, after.busy) - (after.own - before.own)
    steals = (before.steal, after.steal)
    consumers = _consumers(before.processes, after.processes, seconds)
    return Activity(
        seconds=seconds,
        other=max(other_seconds, 0.0) / seconds,
        top=tuple(c for c in consumers[:MOST_CONSUMERS] if c.cores >= 0.01),
        steal=None if None in steals else _growth(*steals) / elapsed,
        runnable=runnable,
        swapped=_count(before.swapped, after.swapped),
        throttled=_count(before.throttled, after.throttled),
    )


def _consumers(
    before: dict[tuple[int, float], ProcessTimes],
    after: dict[tuple[int, float], ProcessTimes],
    seconds: float,
) -> list[Consumer]:
    # An ended child's whole time is added to its parent's: what it had spent before is no growth.
    ended_times: dict[int, float] = {}
    for key in before.keys() - after.keys():
        ended = before[key]
        ended_times[ended.parent] = ended_times.get(ended.parent, 0.0) + ended.own + ended.children
    consumers = []
    for key, now in after.items():
        # A process that began meanwhile spent all its time meanwhile.
        previous = before.get(key, ProcessTimes(now.name, now.parent, 0.0, 0.0))
        children = max(now.children - previous.children - ended_times.get(key[0], 0.0), 0.0)
        consumers.append(Consumer(now.name, key[0], (now.own - previous.own + children) / seconds))
    return sorted(consumers, key=lambda consumer: -consumer.cores)


def _growth(before: float | None, after: float | None) -> float:
    return max((after or 0.0) - (before or 0.0), 0.0)


def _count(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def counters(files: SystemFiles) -> Counters:
    """Return the counters now."""
    swapped = files.numbers("proc/vmstat")
    times = machine_times()
    return Counters(
        total=None if times is None else times.total,
        busy=None if times is None else times.busy,
        steal=None if times is None else times.stolen,
        own=own_time(),
        processes=dict(other_processes()),
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
