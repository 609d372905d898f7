"""The record of one rank's trace: every figure that its events give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.timeline.attribution import Spans
from torchgauge.analyze.timeline.host_work import OUTSIDE, HostWork, operators
from torchgauge.analyze.timeline.launches import Launched, launched
from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.analyze.trace.collectives import collectives, exposed_last
from torchgauge.analyze.trace.copies import copies
from torchgauge.analyze.trace.critical_path import Segment, critical_path, summary
from torchgauge.analyze.trace.device_breakdown import device_times
from torchgauge.analyze.trace.device_work import Activities, device_activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.analyze.trace.memory_over_time import memory_uses
from torchgauge.analyze.trace.packed_columns import packed
from torchgauge.analyze.trace.rank_calls import Calls, rank_calls, sent_to_ranks
from torchgauge.analyze.trace.recorded_tree import (
    attributed,
    launched_in_steps,
    marked_steps,
    tree_of,
)
from torchgauge.analyze.trace.synchronisations import Waits, operator, synchronisations, waits
from torchgauge.analyze.trace.unknown_roles import unknown_roles
from torchgauge.analyze.trace.window import window
from torchgauge.records.trace.critical_path import CriticalPath
from torchgauge.records.trace.events import ABSENT, Events
from torchgauge.records.trace.trace import Contents, Device, Queue, RankTrace

_LAYERS = {
    "JAX": "no layers (JAX records no module names): the tree begins with what the host did",
    "Proton": "no layers: the tree begins with the scopes that were marked",
}
_SHAPES = {
    "JAX": "no shapes: FLOPs and bytes are unknown",
    "Proton": "no shapes and no launch configurations: FLOPs, bytes and occupancy are unknown",
}
_MEMORY = {
    "JAX": "no allocations: memory is unknown",
    "Proton": "no allocations and no copies: memory and transfers are unknown",
}


def rank_trace(events: Events, file: str) -> tuple[RankTrace, Calls]:
    """Return the record of one file's events, and its collectives; `file` is its name."""
    modules, spans = attributed(events)
    tree = tree_of(events, modules, spans)  # what it needs for itself is the most, and first
    work = launched(events, spans)
    facts = Facts(events, work)
    activities = device_activities(events, work, facts)
    host_waits = waits(events)
    steps = launched_in_steps(events, activities)
    begin, end = window(events)
    duration = activities.end - activities.begin
    record = RankTrace(
        file=file,
        rank=events.metadata.rank,
        world=events.metadata.world,
        window=(end - begin) * 1e-9,
        contents=_contents(events, modules),
        devices=tuple(_devices(events)),
        versions=events.metadata.versions,
        times=device_times(activities),
        tree=tree,
        device_time=int(duration.sum()) * 1e-9,
        launched_before=int(duration[~work.launched].sum()) * 1e-9,
        copies=copies(activities, facts),
        collectives=collectives(activities, facts),
        sent=sent_to_ranks(activities, facts),
        exposed_last=exposed_last(activities, steps),
        unknown_roles=unknown_roles(activities, facts),
        queues=_queues(activities),
        synchronisations=synchronisations(events, spans, modules.tree, host_waits),
        critical_path=_critical(events, spans, work, activities, host_waits, begin),
        memory=tuple(memory_uses(events, begin)),
        missing=tuple(_not_recorded(events, modules)),
        warnings=events.warnings,
    )
    calls = rank_calls(activities, facts, _origin(events), steps)
    return msgspec.structs.replace(record, findings=findings(record)), calls


def _origin(events: Events) -> int:
    """Return the origin of the times, in ns of the host's clock."""
    return (events.metadata.base_time or 0) + events.metadata.origin


def _contents(events: Events, modules: Modules) -> Contents:
    def count(*categories: str) -> int:
        return int(events.category.where(lambda name: name in categories).sum())

    origin = None if events.metadata.base_time is None else _origin(events)
    first, last = window(events)
    return Contents(
        events=len(events) + len(events.memory.time),
        operators=count("cpu_op"),
        launches=count("cuda_runtime", "cuda_driver", "launch"),
        device_work=count("kernel", "gpu_memcpy", "gpu_memset"),
        python=count("python_function"),
        memory=len(events.memory.time),
        shapes=any(events.operators.dims.values),
        layers=None if not len(modules) else "torchgauge" if modules.are_ours else "torch",
        begin=None if origin is None else origin + first,
        end=None if origin is None else origin + last,
        recorder=events.metadata.recorder,
        steps=marked_steps(events),
    )


def _devices(events: Events) -> Iterator[Device]:
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
        )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _critical(
    events: Events,
    spans: Spans,
    work: Launched,
    activities: Activities,
    host_waits: Waits,
    begin: int,
) -> CriticalPath | None:
    thread = np.where(work.launched, events.thread.codes[work.call], ABSENT)
    path = critical_path(activities, thread, host_waits, begin)
    host = HostWork(events, spans, np.unique(thread))
    names, codes = events.name.take(spans.row), packed(events.name.codes[work.row])
    of_code = [str(name) for name in events.name.values]
    is_operator = operators(events)

    def named(segment: Segment) -> Iterable[tuple[str, int]]:
        if segment.link == "host":
            return host.between(segment.begin, segment.end)
        length = segment.end - segment.begin
        if segment.link == "launch":
            around = operator(names, spans, int(work.span[segment.activity]), is_operator)
            return ((around or OUTSIDE, length),)
        return ((of_code[codes[segment.activity]], length),)

    return summary(path, named)


def _not_recorded(events: Events, modules: Modules) -> Iterator[str]:
    """Yield a note for each kind of data that was not recorded."""
    by = events.metadata.recorder or ""
    if not len(modules):
        yield _LAYERS.get(by, "no layers (recorded without stacks): the tree begins with operators")
    if not any(events.operators.dims.values):
        yield _SHAPES.get(by, "no shapes (record_shapes=False): FLOPs and bytes are unknown")
    if not len(events.memory.time):
        yield _MEMORY.get(by, "no memory events (profile_memory=False): memory is unknown")
    if not len(events.device_work.row):
        yield "no device work: only the host was recorded"
    elif not len(events.launches.row):
        yield "no launches: time spent waiting for the host is unknown"
    elif by == "Proton" and not (events.device_work.correlation > 0).all():
        yield "no arrows to some kernels (a graph has one to its first): their scope is unknown"
    if by == "Proton" and len(events.device_work.row):
        yield "no device numbers: several devices are shown as one"


def _queues(activities: Activities) -> tuple[Queue, ...]:
    """Return the queue of each stream that has work whose launch was recorded.

    The two clocks differ by some microseconds: what seems to begin before its launch began with it.
    """
    return tuple(_stream_queues(activities.take(activities.launch != ABSENT)))


def _stream_queues(activities: Activities) -> Iterator[Queue]:
    streams = (
        (device, *stream_activities)
        for device, on_device in activities.by(activities.device)
        for stream_activities in on_device.by(on_device.stream)
    )
    for device, stream, on_stream in streams:
        begin = np.maximum(on_stream.begin, on_stream.launch)
        delay = begin - on_stream.launch
        time = np.concatenate([on_stream.launch, begin])
        change = np.repeat([1, -1], len(on_stream))
        order = np.lexsort((-change, time))  # launched before it begins
        time, change = time[order], change[order]
        length = np.cumsum(change)
        duration = int(time[-1] - time[0])
        waiting = float((length[:-1] * np.diff(time)).sum())
        yield Queue(
            device=None if device == ABSENT else device,
            stream=None if stream == ABSENT else stream,
            mean=waiting / duration if duration else 0.0,
            max_length=int(length.max()),
            empty=float((length[change < 0] == 0).mean()),
            delay_median=float(np.median(delay)) * 1e-9,
            delay_p99=float(np.quantile(delay, 0.99)) * 1e-9,
        )
