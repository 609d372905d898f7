"""Translates traces of JAX by the names of each event, its process and its thread."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.dialects import details
from torchgauge.readers.kineto.categories import PYTHON, PYTHON_NAME
from torchgauge.readers.nesting import nest
from torchgauge.records.trace.events import (
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

_NAMES = ("cpu_op", "user_annotation", PYTHON, "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset",
          "gpu_user_annotation", "launch")  # fmt: skip
(HOST, MARK, FUNCTION, CALL, KERNEL, COPY, SET, RANGE, LAUNCH) = range(len(_NAMES))


def with_categories(category: Coded[str], code: Integers) -> Coded[str]:
    """Return the categories, replaced where `code` is one of the numbers above."""
    names: Interned[str | None] = Interned(None)
    original = np.array([names[name] for name in category.values] + [ABSENT], np.int32)
    original = original[category.codes]
    used = set(code.tolist())
    replacement = np.array(
        [names[name] if index in used else ABSENT for index, name in enumerate(_NAMES)] + [ABSENT],
        np.int32,
    )[code]
    return Coded(np.where(code == ABSENT, original, replacement), names.values_by_code())  # type: ignore[arg-type]


def launches(row: Rows, correlation: Integers) -> Launches:
    """Return the table of launches with these rows."""
    absent = np.full(len(row), ABSENT)
    kernel = Coded[str](absent.astype(np.int32), ())
    return Launches(row, correlation, absent, kernel)


def device_work(row: Rows, **known_columns: Any) -> DeviceWork:
    """Return the table of these rows; columns that are not given are absent."""
    count = len(row)
    triple = np.full((count, 3), ABSENT)
    columns: dict[str, Any] = {"grid": triple, "block": triple}
    columns |= {name: np.full(count, np.nan) for name in
                ("blocks_per_sm", "warps_per_sm", "occupancy", "bandwidth")}  # fmt: skip
    columns |= {name: np.full(count, ABSENT) for name in
                ("device", "stream", "correlation", "external_id", "registers", "shared_memory",
                 "graph_node", "size")}  # fmt: skip
    columns["kind"] = Coded[str](np.full(count, ABSENT, np.int32), ())
    return DeviceWork(row=row, **(columns | known_columns))


def with_arrow_launches(
    events: Events, code: Integers, work: Rows, stream: Integers, arrow: str
) -> Events:
    """Return the events with device work, and with a launch where an arrow to it begins.

    `code` is the category of each span as a number above (ABSENT where unchanged), `work` the rows
    of device work, `stream` the stream of each thread and at last ABSENT, `arrow` the category of
    the arrows.
    """
    begins, number = _numbered(events.flows, arrow)
    first, count = len(events), int(begins.sum())
    launch_time = events.flows.time[begins]
    category = with_categories(events.category, code)
    category = with_categories(
        Coded(np.append(category.codes, np.full(count, ABSENT, np.int32)), category.values),
        np.append(np.full(first, ABSENT), np.full(count, LAUNCH)),
    )
    name = events.name
    launch_name = np.full(count, len(name.values), np.int32)
    flows, remaining = events.flows, ~begins
    return dataclasses.replace(
        events,
        start=np.append(events.start, launch_time),
        duration=np.append(events.duration, np.zeros(count, np.int64)),
        name=Coded(np.append(name.codes, launch_name), (*name.values, "launch->kernel")),
        category=category,
        thread=Coded(np.append(events.thread.codes, flows.thread[begins]), events.thread.values),
        launches=launches(np.arange(first, first + count), number[begins]),
        device_work=device_work(
            work, stream=stream[events.thread.codes[work]], correlation=_ended(events, work, number)
        ),
        flows=Flows(
            time=flows.time[remaining],
            thread=flows.thread[remaining],
            id=flows.id[remaining],
            category=flows.category.take(remaining),
            begins=flows.begins[remaining],
        ),
    )


def _numbered(flows: Flows, category: str) -> tuple[np.ndarray, Integers]:
    """Return which ends are begins of arrows to kernels, and the number of each, from 1."""
    arrow = flows.category.where(lambda name: name == category)
    return arrow & flows.begins, np.where(arrow, np.unique(flows.id, return_inverse=True)[1] + 1, 0)


def _ended(events: Events, work: Rows, number: Integers) -> Integers:
    """Return the number of the arrow that ends where each piece of work begins, ABSENT without."""
    flows = events.flows
    ends = np.flatnonzero((number > 0) & ~flows.begins)
    end_keys = zip(flows.thread[ends].tolist(), flows.time[ends].tolist(), strict=True)
    arrow_numbers = dict(zip(end_keys, number[ends].tolist(), strict=True))
    begin_keys = zip(events.thread.codes[work].tolist(), events.start[work].tolist(), strict=True)
    return np.array([arrow_numbers.get(key, ABSENT) for key in begin_keys], np.int64)


_PROCESS = re.compile(r"(?:.*\s)?/(?:(host)|device:(\w+)):(\d+|\w+)(?:\s.*)?")
_STREAM = re.compile(r"Stream #(\d+)")
_OPERATIONS = "XLA Ops"
# Of NVIDIA, of roctracer and of rocprofiler, and the kernels that copy and fill on AMD's devices.
_COPY = re.compile(
    r"Memcpy|(MEMORY_COPY_)?(HOST|DEVICE)_TO_|Copy(Host|Device)To|__amd_rocclr_copy\w+"
)
_SET = re.compile(r"Memset|FillBuffer|__amd_rocclr_fill\w+")
_NO_WORK = re.compile(
    r"Memory(Alloc|Free|Residency|Release)|UnifiedMemory|Overhead|Synchronization"
)
_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|send|recv)\b"
)
# What JAX rounds off a picosecond's time, in ns: ends of nested operations differ by it.
_ROUNDING = 2


def processes(events: Events) -> Iterable[re.Match[str] | None]:
    """Yield the match of each process's name with JAX's pattern, None for other names."""
    return map(_PROCESS.fullmatch, events.metadata.process_names.values())


@dataclasses.dataclass(frozen=True)
class _Lane:
    """What a thread holds: host code, a device's work, or ranges that were derived from it."""

    kind: Literal["host", "stream", "operations", "range", "unknown"]
    device: int = ABSENT
    stream: int = ABSENT


def _lane(events: Events, thread: ThreadId) -> _Lane:
    process = _PROCESS.fullmatch(events.metadata.process_names.get(thread[0], ""))
    if process is None:
        return _Lane("unknown")
    if process[1]:
        return _Lane("host")
    label, device = events.metadata.thread_names.get(thread, ""), details.integer(process[3])
    if stream := _STREAM.match(label):
        return _Lane("stream", device, details.integer(stream[1]))
    if process[2] == "TPU" and label == _OPERATIONS:
        return _Lane("operations", device)
    return _Lane("range", device)


def from_jax(events: Events, unsorted: dict[str, Any]) -> Events:
    """Return the events with categories, launches and device work."""
    lanes = [_lane(events, thread) for thread in events.thread.values]
    rows: Rows = unsorted["row"]
    number = _span_numbers(unsorted["correlation_id"], details.integer, rows, len(events))
    step = _span_numbers(unsorted["step_num"], details.integer, rows, len(events))
    code = _categories(events, lanes, number, step, unsorted)
    call = np.flatnonzero(code == CALL)
    work = np.flatnonzero(np.isin(code, (KERNEL, COPY, SET)))
    devices = sorted(
        {(match[2], details.integer(match[3])) for match in processes(events) if match and match[2]}
    )
    device_metadata = dataclasses.replace(
        events.metadata,
        devices=tuple({"id": n, "name": kind} for kind, n in devices),
        accelerator="TPU" if any(kind == "TPU" for kind, _ in devices) else None,
    )
    return dataclasses.replace(
        events,
        name=_with_steps(events.name, np.where(code == MARK, step, ABSENT)),
        category=with_categories(events.category, code),
        launches=launches(call, number[call]),
        device_work=_jax_device_work(events, lanes, work, number[work], unsorted),
        collectives=_collectives(events, work),
        metadata=device_metadata,
    )


def _categories(
    events: Events, lanes: list[_Lane], number: Integers, step: Integers, unsorted: dict[str, Any]
) -> Integers:
    """Return the category of each span as a number of `kineto_terms`, ABSENT where unchanged."""
    kinds = np.array([lane.kind for lane in lanes], str)[events.thread.codes]
    python = events.name.where(lambda name: name.startswith(PYTHON_NAME))
    copied = events.name.where(lambda name: _COPY.match(name) is not None)
    set_ = events.name.where(lambda name: _SET.match(name) is not None)
    for detail, mask in (("memcpy_details", copied), ("memset_details", set_)):
        mask[unsorted["row"][unsorted[detail].codes != ABSENT]] = True
    no_work = events.name.where(lambda name: _NO_WORK.match(name) is not None)
    code = np.full(len(events), ABSENT)
    code[kinds == "host"] = HOST
    code[(kinds == "host") & (number != ABSENT)] = CALL
    code[(kinds == "host") & (step != ABSENT)] = MARK
    code[(kinds == "host") & python] = FUNCTION
    code[(kinds == "stream") | (kinds == "operations")] = KERNEL
    code[(kinds == "stream") & copied] = COPY
    code[(kinds == "stream") & set_] = SET
    code[(kinds == "range") | ((kinds == "stream") & no_work)] = RANGE
    code[_outer(events, np.flatnonzero(kinds == "operations"))] = RANGE
    code[events.category.codes != ABSENT] = ABSENT
    return code


def _outer(events: Events, rows: Rows) -> Rows:
    """Return the operations that others run inside of: loops and calls, which do no work alone."""
    nesting = nest(
        events.start[rows], events.duration[rows], events.thread.codes[rows], tolerance=_ROUNDING
    )
    outer: Rows = rows[np.unique(nesting.parent[nesting.parent != ABSENT])]
    return outer


def _with_steps(names: Coded[str], step: Integers) -> Coded[str]:
    """Return the names, those of marked steps as PyTorch has them."""
    interned: Interned[str | None] = Interned(None)
    codes = np.array([interned[name] for name in names.values] + [ABSENT], np.int32)[names.codes]
    marked = np.flatnonzero(step != ABSENT)
    codes[marked] = [interned[f"ProfilerStep#{number}"] for number in step[marked].tolist()]
    return Coded(codes, interned.values_by_code())  # type: ignore[arg-type]


def _jax_device_work(
    events: Events, lanes: list[_Lane], work: Rows, number: Integers, unsorted: dict[str, Any]
) -> DeviceWork:
    thread = events.thread.codes[work]
    entry = np.full(len(events), ABSENT)
    entry[unsorted["row"]] = np.arange(len(unsorted["row"]))
    entry = entry[work]
    shape, copied = (
        details.launch_shapes(unsorted["kernel_details"], entry),
        unsorted["memcpy_details"],
    )
    size, kind = details.copies(copied, entry, events.name.take(work))
    return device_work(
        work,
        device=np.array([lane.device for lane in lanes] + [ABSENT])[thread],
        stream=np.array([lane.stream for lane in lanes] + [ABSENT])[thread],
        correlation=number,
        size=np.where(size == ABSENT, details.memory_sets(unsorted["memset_details"], entry), size),
        graph_node=details.graph_node(unsorted["cuda_graph_node_id"], entry),
        kind=kind,
        **shape,
    )


def _collectives(events: Events, work: Rows) -> Collectives:
    """Return the communication among work whose names are XLA's; NCCL's kernels are known by name.

    How much and with whom is not in the file.
    """
    collective_names: dict[str, str] = {}
    for name in events.name.values:
        if collective := _COLLECTIVE.match(name):
            collective_names[name] = collective[1].replace("-", "")
    row = work[events.name.where(collective_names.__contains__)[work]]
    names: Interned[str | None] = Interned(None)
    codes = [names[collective_names[str(events.name[span])]] for span in row.tolist()]
    absent_numbers = np.full(len(row), ABSENT)
    absent_texts = Coded[str](np.full(len(row), ABSENT, np.int32), ())
    return Collectives(
        row=row,
        name=Coded(np.array(codes, np.int32), names.values_by_code()),  # type: ignore[arg-type]
        dtype=absent_texts,
        elements_in=absent_numbers,
        elements_out=absent_numbers,
        group=absent_texts,
        group_description=absent_texts,
        group_size=absent_numbers,
        ranks=absent_texts,
        split_in=absent_texts,
    )


def _span_numbers(column: Coded[Any], meaning: Any, rows: Rows, count: int) -> Integers:
    """Return a number for each span from the texts that some have, ABSENT without."""
    values = np.array([meaning(value) for value in column.values] + [ABSENT], np.int64)
    numbers = np.full(count, ABSENT)
    numbers[rows] = values[column.codes]
    return numbers
