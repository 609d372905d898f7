"""Traces of JAX: what an event is follows from the names of its process, its thread and itself."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from torchgauge.model.events import (
    ABSENT,
    Coded,
    Collectives,
    DeviceWork,
    Events,
    Integers,
    Rows,
    ThreadId,
)
from torchgauge.trace.categories import PYTHON_NAME
from torchgauge.trace.columns import Interned
from torchgauge.trace.details import copies, graph_node, integer, launch_shapes, memory_sets
from torchgauge.trace.nesting import nest
from torchgauge.trace.retold import (
    CALL,
    COPY,
    FUNCTION,
    HOST,
    KERNEL,
    MARK,
    RANGE,
    SET,
    device_work,
    launches,
    with_categories,
)

_PROCESS = re.compile(r"(?:.*\s)?/(?:(host)|device:(\w+)):(\d+|\w+)(?:\s.*)?")
_STREAM = re.compile(r"Stream #(\d+)")
_OPERATIONS = "XLA Ops"
_NO_WORK = re.compile(
    r"Memory(Alloc|Free|Residency|Release)|UnifiedMemory|Overhead|Synchronization"
)
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|send|recv)\b"
)
# What JAX rounds off a picosecond's time, in ns: ends of nested operations differ by it.
_ROUNDING = 2


def processes(events: Events) -> Iterable[re.Match[str] | None]:
    """Yield of each process what the name says that JAX gave it, None for other names."""
    return map(_PROCESS.fullmatch, events.metadata.process_names.values())


@dataclasses.dataclass(frozen=True)
class _Place:
    """What runs on a thread: host code, a device's work, or ranges that were derived from it."""

    what: Literal["host", "stream", "operations", "range", "unknown"]
    device: int = ABSENT
    stream: int = ABSENT


def _place(events: Events, thread: ThreadId) -> _Place:
    process = _PROCESS.fullmatch(events.metadata.process_names.get(thread[0], ""))
    if process is None:
        return _Place("unknown")
    if process[1]:
        return _Place("host")
    label, device = events.metadata.thread_names.get(thread, ""), integer(process[3])
    if found := _STREAM.match(label):
        return _Place("stream", device, integer(found[1]))
    if process[2] == "TPU" and label == _OPERATIONS:
        return _Place("operations", device)
    return _Place("range", device)


def of_jax(events: Events, unsorted: dict[str, Any]) -> Events:
    """Return the events with categories, launches and device work."""
    places = [_place(events, thread) for thread in events.thread.values]
    given: Rows = unsorted["row"]
    number = _of_rows(unsorted["correlation_id"], integer, given, len(events))
    step = _of_rows(unsorted["step_num"], integer, given, len(events))
    code = _categories(events, places, number, step)
    call = np.flatnonzero(code == CALL)
    work = np.flatnonzero(np.isin(code, (KERNEL, COPY, SET)))
    devices = sorted(
        {(found[2], integer(found[3])) for found in processes(events) if found and found[2]}
    )
    said = dataclasses.replace(
        events.metadata, devices=tuple({"id": n, "name": kind} for kind, n in devices)
    )
    return dataclasses.replace(
        events,
        name=_with_steps(events.name, np.where(code == MARK, step, ABSENT)),
        category=with_categories(events.category, code),
        launches=launches(call, number[call]),
        device_work=_work_of_jax(events, places, work, number[work], unsorted),
        collectives=_collectives(events, work),
        metadata=said,
    )


def _categories(events: Events, places: list[_Place], number: Integers, step: Integers) -> Integers:
    """Return the category of each span as a number of `retold`, ABSENT where it stays as it is."""
    here = np.array([place.what for place in places], str)[events.thread.codes]
    python = events.name.where(lambda name: name.startswith(PYTHON_NAME))
    copied = events.name.where(lambda name: name.startswith("Memcpy"))
    set_ = events.name.where(lambda name: name.startswith("Memset"))
    nothing = events.name.where(lambda name: _NO_WORK.match(name) is not None)
    code = np.full(len(events), ABSENT)
    code[here == "host"] = HOST
    code[(here == "host") & (number != ABSENT)] = CALL
    code[(here == "host") & (step != ABSENT)] = MARK
    code[(here == "host") & python] = FUNCTION
    code[(here == "stream") | (here == "operations")] = KERNEL
    code[(here == "stream") & copied] = COPY
    code[(here == "stream") & set_] = SET
    code[(here == "range") | ((here == "stream") & nothing)] = RANGE
    code[_outer(events, np.flatnonzero(here == "operations"))] = RANGE
    code[events.category.codes != ABSENT] = ABSENT
    return code


def _outer(events: Events, rows: Rows) -> Rows:
    """Return the operations that others run inside of: loops and calls, which do no work alone."""
    found = nest(
        events.start[rows], events.duration[rows], events.thread.codes[rows], tolerance=_ROUNDING
    )
    outer: Rows = rows[np.unique(found.parent[found.parent != ABSENT])]
    return outer


def _with_steps(names: Coded[str], step: Integers) -> Coded[str]:
    """Return the names, those of marked steps as PyTorch has them."""
    known: Interned[str | None] = Interned(None)
    codes = np.array([known[name] for name in names.values] + [ABSENT], np.int32)[names.codes]
    marked = np.flatnonzero(step != ABSENT)
    codes[marked] = [known[f"ProfilerStep#{number}"] for number in step[marked].tolist()]
    return Coded(codes, known.values_by_code())  # type: ignore[arg-type]


def _work_of_jax(
    events: Events, places: list[_Place], work: Rows, number: Integers, unsorted: dict[str, Any]
) -> DeviceWork:
    thread = events.thread.codes[work]
    entry = np.full(len(events), ABSENT)
    entry[unsorted["row"]] = np.arange(len(unsorted["row"]))
    entry = entry[work]
    shape, copied = launch_shapes(unsorted["kernel_details"], entry), unsorted["memcpy_details"]
    size, kind = copies(copied, entry, events.name.take(work))
    return device_work(
        work,
        device=np.array([place.device for place in places] + [ABSENT])[thread],
        stream=np.array([place.stream for place in places] + [ABSENT])[thread],
        correlation=number,
        size=np.where(size == ABSENT, memory_sets(unsorted["memset_details"], entry), size),
        graph_node=graph_node(unsorted["cuda_graph_node_id"], entry),
        kind=kind,
        **shape,
    )


def _collectives(events: Events, work: Rows) -> Collectives:
    """Return the communication among work whose names are XLA's; NCCL's kernels are known by name.

    How much and with whom is not in the file.
    """
    found: dict[str, str] = {}
    for name in events.name.values:
        if said := _COLLECTIVE.match(name):
            found[name] = said[1].replace("-", "")
    row = work[events.name.where(found.__contains__)[work]]
    names: Interned[str | None] = Interned(None)
    codes = [names[found[str(events.name[place])]] for place in row.tolist()]
    none, nothing = np.full(len(row), ABSENT), Coded[str](np.full(len(row), ABSENT, np.int32), ())
    return Collectives(
        row=row,
        name=Coded(np.array(codes, np.int32), names.values_by_code()),  # type: ignore[arg-type]
        dtype=nothing,
        elements_in=none,
        elements_out=none,
        group=nothing,
        group_description=nothing,
        group_size=none,
        ranks=nothing,
    )


def _of_rows(column: Coded[Any], meaning: Any, given: Rows, count: int) -> Integers:
    """Return a number for each span from the texts that some have, ABSENT without."""
    values = np.array([meaning(value) for value in column.values] + [ABSENT], np.int64)
    found = np.full(count, ABSENT)
    found[given] = values[column.codes]
    return found
