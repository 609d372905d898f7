"""Traces of JAX and Proton told in Kineto's words, so that all behind reads one language.

The format is the same, what it says is not. JAX names no categories: what an event is follows from
the names of its process, its thread and itself. Proton says what a kernel is, and by the name of
its thread and by arrows where it ran and who launched it. Names may come after the events: all of
this is done when everything has been read.
"""

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
    Flows,
    Integers,
    Launches,
    Rows,
    ThreadId,
)
from torchgauge.trace.categories import PYTHON, PYTHON_NAME
from torchgauge.trace.columns import Interned
from torchgauge.trace.details import copies, graph_node, integer, launch_shapes, memory_sets
from torchgauge.trace.nesting import nest

Recorder = Literal["PyTorch", "JAX", "Proton"]

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

_PROTON = frozenset(("kernel", "scope", "metric"))
_LANE = re.compile(r"(?:GPU )?Stream:? (\d+)|(?:CPU Thread|cpu thread) \d+|(Graph): Stream \d+")
_ARROW = "flow"

_NAMES = ("cpu_op", "user_annotation", PYTHON, "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset",
          "gpu_user_annotation", "launch")  # fmt: skip
(_HOST, _MARK, _FUNCTION, _CALL, _KERNEL, _COPY, _SET, _RANGE, _LAUNCH) = range(len(_NAMES))


def translated(events: Events, unsorted: dict[str, Any]) -> Events:
    """Return the events as Kineto would have them, with the name of who recorded them.

    `unsorted` is the table of arguments of spans that have no category.
    """
    known = set(events.category.values)
    if (events.category.codes == ABSENT).any() and any(_processes(events)):
        return _recorded(_of_jax(events, unsorted), "JAX")
    if known and known <= _PROTON and (known != {"kernel"} or any(_lanes(events))):
        return _recorded(_of_proton(events), "Proton")
    return _recorded(events, "PyTorch") if "cpu_op" in known or _has_header(events) else events


def _recorded(events: Events, recorder: Recorder) -> Events:
    said = dataclasses.replace(events.metadata, recorder=recorder)
    return dataclasses.replace(events, metadata=said)


def _has_header(events: Events) -> bool:
    return events.metadata.schema_version is not None


def _processes(events: Events) -> Iterable[re.Match[str] | None]:
    """Yield of each process what the name says that JAX gave it, None for other names."""
    return map(_PROCESS.fullmatch, events.metadata.process_names.values())


def _lane(events: Events, thread: ThreadId) -> re.Match[str] | None:
    """Return what the name says that Proton gave a thread; before 2026 that is its number."""
    return _LANE.fullmatch(events.metadata.thread_names.get(thread, str(thread[1])))


def _lanes(events: Events) -> Iterable[re.Match[str] | None]:
    return (_lane(events, thread) for thread in events.thread.values)


# JAX


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


def _of_jax(events: Events, unsorted: dict[str, Any]) -> Events:
    places = [_place(events, thread) for thread in events.thread.values]
    given: Rows = unsorted["row"]
    number = _of_rows(unsorted["correlation_id"], integer, given, len(events))
    step = _of_rows(unsorted["step_num"], integer, given, len(events))
    code = _categories(events, places, number, step)
    call = np.flatnonzero(code == _CALL)
    work = np.flatnonzero(np.isin(code, (_KERNEL, _COPY, _SET)))
    devices = sorted(
        {(found[2], integer(found[3])) for found in _processes(events) if found and found[2]}
    )
    said = dataclasses.replace(
        events.metadata, devices=tuple({"id": n, "name": kind} for kind, n in devices)
    )
    return dataclasses.replace(
        events,
        name=_with_steps(events.name, np.where(code == _MARK, step, ABSENT)),
        category=_with(events.category, code),
        launches=_launches(call, number[call]),
        device_work=_work_of_jax(events, places, work, number[work], unsorted),
        collectives=_collectives(events, work),
        metadata=said,
    )


def _categories(events: Events, places: list[_Place], number: Integers, step: Integers) -> Integers:
    """Return the category of each span as a place in `_NAMES`, ABSENT where it stays as it is."""
    here = np.array([place.what for place in places], str)[events.thread.codes]
    python = events.name.where(lambda name: name.startswith(PYTHON_NAME))
    copied = events.name.where(lambda name: name.startswith("Memcpy"))
    set_ = events.name.where(lambda name: name.startswith("Memset"))
    nothing = events.name.where(lambda name: _NO_WORK.match(name) is not None)
    code = np.full(len(events), ABSENT)
    code[here == "host"] = _HOST
    code[(here == "host") & (number != ABSENT)] = _CALL
    code[(here == "host") & (step != ABSENT)] = _MARK
    code[(here == "host") & python] = _FUNCTION
    code[(here == "stream") | (here == "operations")] = _KERNEL
    code[(here == "stream") & copied] = _COPY
    code[(here == "stream") & set_] = _SET
    code[(here == "range") | ((here == "stream") & nothing)] = _RANGE
    code[_outer(events, np.flatnonzero(here == "operations"))] = _RANGE
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
    return _device_work(
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


# Proton


def _of_proton(events: Events) -> Events:
    """Return the events with streams, and with a launch where an arrow begins."""
    lanes = list(_lanes(events))
    kernel = events.category.where(lambda name: name == "kernel")
    on_graph = np.array([bool(lane and lane[2]) for lane in lanes] + [False])
    code = np.where(on_graph[events.thread.codes], _RANGE, _HOST)
    code[kernel] = ABSENT
    work = np.flatnonzero(kernel)
    begins, number = _numbered(events.flows)
    first, count = len(events), int(begins.sum())
    at = events.flows.time[begins]
    stream = np.array([integer(lane[1]) if lane and lane[1] else ABSENT for lane in lanes])
    names: Interned[str | None] = Interned(None)
    plain, cut = (
        np.array([names[meaning(name)] for name in events.name.values] + [ABSENT], np.int32)
        for meaning in (str, _without_values)
    )
    measured = events.category.where(lambda name: name == "metric")
    codes = np.where(measured, cut[events.name.codes], plain[events.name.codes])
    codes = np.append(codes, np.full(count, names["launch->kernel"], np.int32))
    kept = ~begins
    category = _with(events.category, code)
    category = _with(
        Coded(np.append(category.codes, np.full(count, ABSENT, np.int32)), category.values),
        np.append(np.full(first, ABSENT), np.full(count, _LAUNCH)),
    )
    return dataclasses.replace(
        events,
        start=np.append(events.start, at),
        duration=np.append(events.duration, np.zeros(count, np.int64)),
        name=Coded(codes, names.values_by_code()),  # type: ignore[arg-type]
        category=category,
        thread=Coded(
            np.append(events.thread.codes, events.flows.thread[begins]), events.thread.values
        ),
        launches=_launches(np.arange(first, first + count), number[begins]),
        device_work=_device_work(
            work,
            stream=np.append(stream, ABSENT)[events.thread.codes[work]],
            correlation=_ended(events, work, number),
        ),
        flows=Flows(
            time=events.flows.time[kept],
            thread=events.flows.thread[kept],
            id=events.flows.id[kept],
            category=events.flows.category.take(kept),
            begins=events.flows.begins[kept],
        ),
    )


def _without_values(name: str) -> str:
    """Return a scope's name without the values that were measured in it: "loss: <value, 0.5>"."""
    return name.partition(": <")[0]


def _numbered(flows: Flows) -> tuple[np.ndarray, Integers]:
    """Return which ends are begins of arrows to kernels, and the number of each arrow from 1 on."""
    arrow = flows.category.where(lambda name: name == _ARROW)
    return arrow & flows.begins, np.where(arrow, np.unique(flows.id, return_inverse=True)[1] + 1, 0)


def _ended(events: Events, work: Rows, number: Integers) -> Integers:
    """Return the number of the arrow that ends where each piece of work begins, ABSENT without."""
    flows = events.flows
    ends = np.flatnonzero((number > 0) & ~flows.begins)
    at = zip(flows.thread[ends].tolist(), flows.time[ends].tolist(), strict=True)
    found = dict(zip(at, number[ends].tolist(), strict=True))
    begin = zip(events.thread.codes[work].tolist(), events.start[work].tolist(), strict=True)
    return np.array([found.get(key, ABSENT) for key in begin], np.int64)


# Both


def _of_rows(column: Coded[Any], meaning: Any, given: Rows, count: int) -> Integers:
    """Return a number for each span from the texts that some have, ABSENT without."""
    values = np.array([meaning(value) for value in column.values] + [ABSENT], np.int64)
    found = np.full(count, ABSENT)
    found[given] = values[column.codes]
    return found


def _with(category: Coded[str], code: Integers) -> Coded[str]:
    """Return the categories, replaced where `code` is a place in `_NAMES`."""
    names: Interned[str | None] = Interned(None)
    kept = np.array([names[name] for name in category.values] + [ABSENT], np.int32)[category.codes]
    used = set(code.tolist())
    new = np.array(
        [names[name] if place in used else ABSENT for place, name in enumerate(_NAMES)] + [ABSENT],
        np.int32,
    )[code]
    return Coded(np.where(code == ABSENT, kept, new), names.values_by_code())  # type: ignore[arg-type]


def _launches(row: Rows, correlation: Integers) -> Launches:
    return Launches(row=row, correlation=correlation, external_id=np.full(len(row), ABSENT))


def _device_work(row: Rows, **known: Any) -> DeviceWork:
    """Return the table of these rows; what is not given is absent."""
    count = len(row)
    triple = np.full((count, 3), ABSENT)
    columns: dict[str, Any] = {"grid": triple, "block": triple}
    columns |= {name: np.full(count, np.nan) for name in
                ("blocks_per_sm", "warps_per_sm", "occupancy", "bandwidth")}  # fmt: skip
    columns |= {name: np.full(count, ABSENT) for name in
                ("device", "stream", "correlation", "external_id", "registers", "shared_memory",
                 "graph_node", "size")}  # fmt: skip
    columns["kind"] = Coded[str](np.full(count, ABSENT, np.int32), ())
    return DeviceWork(row=row, **(columns | known))
