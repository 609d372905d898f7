"""The record of one rank's trace: every figure that its events give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from torchgauge.analyze.attribution import Spans
from torchgauge.analyze.collectives import collectives
from torchgauge.analyze.copies import copies
from torchgauge.analyze.critical_path import Segment, critical_path, summary
from torchgauge.analyze.device_breakdown import device_times
from torchgauge.analyze.host_work import OUTSIDE, HostWork, operators
from torchgauge.analyze.kernel_facts import Facts
from torchgauge.analyze.launches import Launched, launched, launches_are_told
from torchgauge.analyze.memory_over_time import memory_uses
from torchgauge.analyze.module_calls import Modules
from torchgauge.analyze.not_recorded import not_recorded
from torchgauge.analyze.packed import packed
from torchgauge.analyze.pieces import Pieces, pieces
from torchgauge.analyze.queues import queues
from torchgauge.analyze.rank_calls import Calls, rank_calls
from torchgauge.analyze.recorded_tree import attributed, marked_steps, tree_of
from torchgauge.analyze.synchronisations import Waits, operator, synchronisations, waits
from torchgauge.analyze.trace_findings import rank_findings
from torchgauge.analyze.window import window
from torchgauge.model.critical_path import CriticalPath
from torchgauge.model.events import ABSENT, Events
from torchgauge.model.trace import Contents, Device, RankTrace

_HOST = ("cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver")


def rank_trace(events: Events, file: str) -> tuple[RankTrace, Calls]:
    """Return what the events of one file say, and its collectives; `file` is its name."""
    modules, spans = attributed(events)
    tree = tree_of(events, modules, spans)  # what it needs for itself is the most, and first
    work = launched(events, spans)
    facts = Facts(events, work)
    found = pieces(events, work, facts)
    waited = waits(events)
    begin, end = window(events)
    duration = found.end - found.begin
    record = RankTrace(
        file=file,
        rank=events.metadata.rank,
        world=events.metadata.world,
        window=(end - begin) * 1e-9,
        contents=_contents(events, modules),
        devices=tuple(_devices(events)),
        versions=events.metadata.versions,
        times=device_times(found),
        tree=tree,
        device_time=int(duration.sum()) * 1e-9,
        launched_before=int(duration[~work.launched].sum()) * 1e-9,
        copies=copies(found, facts),
        collectives=collectives(found, facts),
        queues=queues(found),
        synchronisations=synchronisations(events, spans, modules.tree, waited),
        critical_path=_critical(events, spans, work, found, waited, begin),
        memory=tuple(memory_uses(events, begin)),
        missing=tuple(not_recorded(events, modules)),
        warnings=events.warnings,
    )
    calls = rank_calls(found, facts, _origin(events))
    findings = rank_findings(record, found, launches_told=launches_are_told(events))
    return msgspec.structs.replace(record, findings=findings), calls


def _origin(events: Events) -> int:
    """Return what times count from, in ns of the host's clock."""
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
    for said in events.metadata.devices:
        number = _integer(said.get("id"))
        if number is None:
            continue
        major, minor = said.get("computeMajor"), said.get("computeMinor")
        yield Device(
            number=number,
            name=str(said.get("name", "")),
            memory=_integer(said.get("totalGlobalMem")),
            capability=f"{major}.{minor}" if major is not None and minor is not None else "",
        )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _critical(
    events: Events, spans: Spans, work: Launched, found: Pieces, waited: Waits, begin: int
) -> CriticalPath | None:
    thread = np.where(work.launched, events.thread.codes[work.call], ABSENT)
    path = critical_path(found, thread, waited, begin)
    host = HostWork(events, spans, np.unique(thread))
    names, codes = events.name.take(spans.row), packed(events.name.codes[work.row])
    of_code = [str(name) for name in events.name.values]
    is_operator = operators(events)

    def named(segment: Segment) -> Iterable[tuple[str, int]]:
        if segment.link == "host":
            return host.between(segment.begin, segment.end)
        length = segment.end - segment.begin
        if segment.link == "launch":
            around = operator(names, spans, int(work.span[segment.piece]), is_operator)
            return ((around or OUTSIDE, length),)
        return ((of_code[codes[segment.piece]], length),)

    return summary(path, named)
