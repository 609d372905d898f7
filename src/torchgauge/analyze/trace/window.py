"""The window of a recording: the time from the first to the last of what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from torchgauge.analyze.timeline.launches import KINDS
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.trace.device_work import marked_steps
from torchgauge.readers.kineto.categories import PYTHON, is_launch
from torchgauge.records.trace.events import Events
from torchgauge.records.trace.trace import Contents, Device, UncountedEvents


def window(events: Events) -> tuple[int, int]:
    """Return begin and end, in ns, of all events except the profiler's own marks."""
    rows = np.flatnonzero(events.category.where(lambda name: name != "Trace"))
    if not len(rows):
        return 0, 0
    start = events.start[rows]
    return int(start.min()), int((start + np.maximum(events.duration[rows], 0)).max())


_LAYERS = {
    "JAX": "no layers (JAX records no module names): the tree begins with what the host did",
    "Proton": "no layers: the tree begins with the scopes that were marked",
    "torch.compile": "no layers: the tree has the phases of compilation",
    "rocprof": "no layers and no operators: the tree has the program's own ranges",
    "ExecuTorch": "no layers: `torchgauge profile FILE.pte --etrecord FILE` has them",
}
_SHAPES = {
    "JAX": "no shapes: FLOPs and bytes are unknown",
    "Proton": "no shapes and no launch configurations: FLOPs, bytes and occupancy are unknown",
    "torch.compile": "no shapes: FLOPs and bytes are unknown",
    "rocprof": "no shapes: FLOPs and bytes are unknown",
    "ExecuTorch": "no shapes: FLOPs and bytes are unknown",
}
_MEMORY = {
    "JAX": "no allocations: memory is unknown",
    "Proton": "no allocations and no copies: memory and transfers are unknown",
    "torch.compile": "no allocations: memory is unknown",
    "rocprof": "no allocations: memory is unknown",
    "ExecuTorch": "no allocations: memory is unknown",
}
# "launch" is Proton's; "Trace" has the profiler's own marks.
_COUNTED = frozenset(
    (
        "cpu_op",
        "user_annotation",
        "gpu_user_annotation",
        PYTHON,
        "cuda_sync",
        "launch",
        "Trace",
        *KINDS,
    )
)


def origin(events: Events) -> int:
    """Return the origin of the times, in ns of the host's clock."""
    return (events.metadata.base_time or 0) + events.metadata.origin


def contents(events: Events, modules: Modules) -> Contents:
    """Return what is in the file, and what of it no figure counts."""

    def count(*categories: str) -> int:
        return int(events.category.where(lambda name: name in categories).sum())

    begin = None if events.metadata.base_time is None else origin(events)
    first, last = window(events)
    return Contents(
        events=len(events) + len(events.memory.time),
        operators=count("cpu_op"),
        launches=count("launch") + int(events.category.where(is_launch).sum()),
        device_work=count("kernel", "gpu_memcpy", "gpu_memset"),
        python=count("python_function"),
        memory=len(events.memory.time),
        shapes=any(events.operators.dims.values),
        layers=None if not len(modules) else "torchgauge" if modules.are_ours else "torch",
        begin=None if begin is None else begin + first,
        end=None if begin is None else begin + last,
        recorder=events.metadata.recorder,
        steps=marked_steps(events),
        uncounted=uncounted(events),
    )


def devices(events: Events) -> Iterator[Device]:
    """Yield the devices of the file's header that have a number."""
    for properties in events.metadata.devices:
        number = _integer(properties.get("id"))
        if number is None:
            continue
        major, minor = properties.get("computeMajor"), properties.get("computeMinor")
        yield Device(
            number=number,
            name=str(properties.get("name", "")),
            memory=_integer(properties.get("totalGlobalMem")),
            capability=f"{major}.{minor}" if major is not None and minor is not None else "",
            multiprocessors=_integer(properties.get("numSms")),
            threads=_integer(properties.get("maxThreadsPerMultiprocessor")),
        )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def uncounted(events: Events) -> tuple[UncountedEvents, ...]:
    """Return the categories that no figure counts, most events first."""
    codes = events.category.codes + 1  # 0 is none
    counts = np.bincount(codes, minlength=len(events.category.values) + 1)
    times = np.bincount(codes, np.maximum(events.duration, 0), len(counts))
    records = [
        UncountedEvents(category=name, count=int(count), time=float(time) * 1e-9)
        for name, count, time in zip(("", *events.category.values), counts, times, strict=True)
        if count and name not in _COUNTED and not is_launch(name)
    ]
    return tuple(sorted(records, key=lambda record: -record.count))


def not_recorded(events: Events, modules: Modules) -> Iterator[str]:
    """Yield a note for each kind of data that was not recorded."""
    by = events.metadata.recorder or ""
    if not len(modules):
        yield _LAYERS.get(by, "no layers (recorded without stacks): the tree begins with operators")
    if not any(events.operators.dims.values):
        yield _SHAPES.get(by, "no shapes (record_shapes=False): FLOPs and bytes are unknown")
    if not len(events.memory.time):
        yield _MEMORY.get(by, "no memory events (profile_memory=False): memory is unknown")
    if not len(events.device_work.row):
        yield _without_device_work(events)
    elif not len(events.launches.row):
        yield "no launches: time spent waiting for the host is unknown"
    elif by == "Proton" and not (events.device_work.correlation > 0).all():
        yield "no arrows to some kernels (a graph has one to its first): their scope is unknown"
    if by == "Proton" and len(events.device_work.row):
        yield "no device numbers: several devices are shown as one"


def _without_device_work(events: Events) -> str:
    if events.metadata.recorder == "torch.compile":
        return "no runs: only compilation was recorded"
    names = ", ".join(record.category or "no category" for record in uncounted(events))
    if not names:
        return "no device work: only the host was recorded"
    return f"no device work that is known as such: events of {names} are counted in no figure"
