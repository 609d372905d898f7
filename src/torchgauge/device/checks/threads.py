"""Checks of thread counts, quotas and affinity against the usable cores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge.device.checks.check import Looking, Observation, check
from torchgauge.device.checks.readings import Readings
from torchgauge.records.finding import Finding

# From the beginning of a path alone: tried from each of its characters, a process's thousands of
# mapped files take a tenth of a second.
RUNTIME = re.compile(r"(?<!\S)\S*/(?:libgomp|libiomp5|libomp)[^/\s]*\.(?:so|dylib)\S*")
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@check("quota", "CPU quota")
def quota(now: Readings) -> Looking:
    """Look for a cgroup's limit on the cores' time, and for threads that will run into it."""
    limit = now.quota
    if limit is None:
        if now.files.text("proc/self/cgroup") is None:
            return Observation(unknown="this system has no cgroups to read")
        return Observation("none")
    threads = _threads(now)
    demand = threads or len(now.usable)
    over = demand > limit
    unit = "torch threads" if threads else "usable cores"
    throttled = _throttled_periods(now)
    evidence = f"{limit:g} cores' worth of time for {demand} {unit}"
    if throttled:
        evidence += f"; stopped in {throttled:,} periods so far"
    if over or limit < len(now.usable):
        yield Finding(
            id="cpu-quota",
            severity="serious" if over else "info",
            title="A cgroup's CPU quota stops this process" if over else "A CPU quota is set",
            evidence=evidence + ".",
            remedy=f"Raise the quota, or set {max(int(limit), 1)} threads "
            "(OMP_NUM_THREADS, torch.set_num_threads)."
            if over
            else "Keep the threads below it.",
        )
    return Observation(f"{limit:g} cores")


def _throttled_periods(now: Readings) -> int:
    root = now.files.root
    folders = [str(folder.relative_to(root)) for folder in now.files.cgroups()]
    paths = [f"{folder}/{name}" for folder in folders for name in ("cpu.stat", "cpu/cpu.stat")]
    return max(now.files.numbers(path).get("nr_throttled", 0) for path in paths)


def _threads(now: Readings) -> int | None:
    if now.torch is not None:
        return now.torch.threads
    settings = [now.variables.get(name, "") for name in COUNTS]
    return max((int(value) for value in settings if value.isdecimal()), default=None)


@check("threads", "threads")
def threads(now: Readings) -> Looking:
    """Look for more threads than cores, and for several OpenMP runtimes side by side."""
    cores = len(now.usable)
    yield from _too_many(now)
    yield from _too_few(now)
    maps = now.files.text("proc/self/maps")
    if maps is not None and len(runtimes := sorted(set(RUNTIME.findall(maps)))) > 1:
        yield Finding(
            id="several-openmp",
            severity="warning",
            title="Several OpenMP runtimes are loaded",
            evidence=f"{', '.join(runtimes)}: each keeps threads of its own.",
            remedy="Import torch first, and install what brings another from the same source.",
        )
    summary = f"torch {now.torch.threads} on {cores} cores" if now.torch is not None else ""
    missing = [
        "torch is not loaded" if now.torch is None else "",
        "loaded runtimes cannot be read" if maps is None else "",
    ]
    return Observation(summary, "; ".join(filter(None, missing)))


def _too_many(now: Readings) -> Iterator[Finding]:
    cores = len(now.usable)
    remedy = f"Set at most {cores} (OMP_NUM_THREADS={cores}, torch.set_num_threads)."
    if now.torch is not None and now.torch.threads > cores:
        yield Finding(
            id="threads-oversubscribed",
            severity="serious",
            title="More threads than cores",
            evidence=f"torch computes with {now.torch.threads} threads on {cores} usable cores; "
            "they take turns, and wait for each other.",
            remedy=remedy,
        )
    settings = {name: now.variables.get(name, "") for name in COUNTS}
    over = [f"{name}={n}" for name, n in settings.items() if n.isdecimal() and int(n) > cores]
    if over:
        # torch itself may keep to the cores there are, and other libraries need not.
        yield Finding(
            id="threads-variable",
            severity="warning",
            title="A variable asks for more threads than cores",
            evidence=f"{', '.join(over)} on {cores} usable cores"
            + (f"; torch itself takes {now.torch.threads}." if now.torch is not None else "."),
            remedy=remedy,
        )


def _too_few(now: Readings) -> Iterator[Finding]:
    if now.torch is not None and 2 * now.torch.threads < now.granted:
        settings = [f", {name}={now.variables[name]}" for name in COUNTS if name in now.variables]
        yield Finding(
            id="threads-few",
            severity="info",
            title="torch uses less than half of the cores",
            evidence=f"{now.torch.threads} threads for {now.granted:g} cores{''.join(settings)}.",
            remedy="Fine if intended; torch.set_num_threads changes it.",
        )


@check("affinity", "CPU affinity")
def affinity(now: Readings) -> Looking:
    """Look for cores that this process may not use."""
    cores, usable = now.logical_cores, now.usable
    if len(usable) < cores:
        yield Finding(
            id="cpu-affinity",
            severity="info",
            title="This process is bound to some of the cores",
            evidence=f"{len(usable)} of {cores} cores: {ranges(usable)}.",
            remedy="Compare only with runs bound to the same cores (taskset, cpuset).",
        )
    return Observation(f"{len(usable)} of {cores} cores")


def ranges(numbers: tuple[int, ...]) -> str:
    """Return sorted numbers the way the kernel lists cores: '0-3,8'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


@check("numa", "NUMA")
def numa(now: Readings) -> Looking:
    """Look for memory that is near to some of our cores and far from others."""
    lists = now.files.texts("sys/devices/system/node/node[0-9]*/cpulist")
    if not lists:
        return Observation(unknown="the kernel lists no nodes")
    nodes = {path.split("/")[-2]: _cores(text) for path, text in lists.items()}
    usable_nodes = [name for name, cores in nodes.items() if cores & set(now.usable)]
    if len(usable_nodes) > 1:
        yield Finding(
            id="numa-unbound",
            severity="warning",
            title="Threads and memory may land on different NUMA nodes",
            evidence=f"This process may run on {len(usable_nodes)} nodes "
            f"({', '.join(usable_nodes)}).",
            remedy="Bind both: numactl --cpunodebind=0 --membind=0 COMMAND",
        )
    return Observation(f"{len(nodes)} node{'s' * (len(nodes) > 1)}")


def _cores(text: str) -> set[int]:
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cores |= set(range(int(first), int(last or first) + 1))
    return cores
