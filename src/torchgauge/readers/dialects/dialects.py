"""Translates traces of other recorders to Kineto's terms, so that later code reads one dialect.

The file format is the same, its terms are not. Names of processes and threads may come after the
events: all of this is done when everything has been read.

Translates traces in which arrows lead from launches to device work: of Proton and torch_npu.

In both a thread's name has the stream. Proton's work has a category. That of an NPU is the spans of
the process "Ascend Hardware" in torch_npu's `trace_view.json`; what the host did is in PyTorch's
categories, and other processes have what CANN did and what was derived from the work.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.dialects import jax_trace
from torchgauge.readers.dialects.details import integer
from torchgauge.readers.kineto.categories import NPU_ARROW, PROTON_ARROW, is_launch
from torchgauge.records.trace.events import ABSENT, Coded, Events, Integers, ThreadId

CATEGORIES = frozenset(("kernel", "scope", "metric"))
_LANE = re.compile(r"(?:GPU )?Stream:? (\d+)|(?:CPU Thread|cpu thread) \d+|(Graph): Stream \d+")
_HARDWARE = "Ascend Hardware"
_STREAM = re.compile(r"Stream (\d+)")
_COPY = re.compile(r"\w*memcpy\w*|SDMA\w*", re.IGNORECASE)
_SET = re.compile(r"\w*memset\w*", re.IGNORECASE)
# Tasks that wait or mark.
_NO_WORK = re.compile(r"(EVENT|NOTIFY|Notify)_\w+|PROFILING_\w+|Capture\w*")


def _lane(events: Events, thread: ThreadId) -> re.Match[str] | None:
    """Return the match of a thread's name; older versions have the name as the thread's number."""
    return _LANE.fullmatch(events.metadata.thread_names.get(thread, str(thread[1])))


def lanes(events: Events) -> Iterable[re.Match[str] | None]:
    """Yield the match of each thread's name, None for names that are not Proton's."""
    return (_lane(events, thread) for thread in events.thread.values)


def from_proton(events: Events) -> Events:
    """Return the events with streams, and with a launch where an arrow begins."""
    lane_matches = list(lanes(events))
    kernel = events.category.where(lambda name: name == "kernel")
    on_graph = np.array([bool(lane and lane[2]) for lane in lane_matches] + [False])
    code = np.where(on_graph[events.thread.codes], jax_trace.RANGE, jax_trace.HOST)
    code[kernel] = ABSENT
    numbers = [integer(lane[1]) if lane and lane[1] else ABSENT for lane in lane_matches]
    stream = np.array([*numbers, ABSENT])
    named = dataclasses.replace(events, name=_names(events))
    return jax_trace.with_arrow_launches(named, code, np.flatnonzero(kernel), stream, PROTON_ARROW)


def _names(events: Events) -> Coded[str]:
    """Return the names of all spans, those of measured scopes without their values."""
    names: Interned[str | None] = Interned(None)
    plain, cut = (
        np.array([names[meaning(name)] for name in events.name.values] + [ABSENT], np.int32)
        for meaning in (str, _without_values)
    )
    measured = events.category.where(lambda name: name == "metric")
    codes = np.where(measured, cut[events.name.codes], plain[events.name.codes])
    return Coded(codes, names.values_by_code())  # type: ignore[arg-type]


def _without_values(name: str) -> str:
    """Return a scope's name without the values that were measured in it: "loss: <value, 0.5>"."""
    return name.partition(": <")[0]


def is_ascend(events: Events) -> bool:
    """Return whether the trace has a process of the NPU."""
    return _HARDWARE in events.metadata.process_names.values()


def from_ascend(events: Events) -> Events:
    """Return the events with the work of the NPU, and a launch where an arrow to it begins."""
    streams = [_stream(events, thread) for thread in events.thread.values]
    on_hardware = [_process(events, thread) == _HARDWARE for thread in events.thread.values]
    is_work = np.append(np.array(on_hardware, bool), False)[events.thread.codes]
    is_work &= ~events.name.where(lambda name: _NO_WORK.fullmatch(name) is not None)
    code = _categories(events, is_work)
    translated = jax_trace.with_arrow_launches(
        events, code, np.flatnonzero(is_work), np.array([*streams, ABSENT]), NPU_ARROW
    )
    metadata = dataclasses.replace(events.metadata, accelerator="NPU")
    return dataclasses.replace(translated, metadata=metadata)


def _categories(events: Events, is_work: np.ndarray) -> Integers:
    code = np.where(is_work, jax_trace.KERNEL, ABSENT)
    code[is_work & events.name.where(lambda name: _COPY.fullmatch(name) is not None)] = (
        jax_trace.COPY
    )
    code[is_work & events.name.where(lambda name: _SET.fullmatch(name) is not None)] = jax_trace.SET
    return code


def _process(events: Events, thread: ThreadId) -> str:
    return events.metadata.process_names.get(thread[0], "")


def _stream(events: Events, thread: ThreadId) -> int:
    match = _STREAM.match(events.metadata.thread_names.get(thread, ""))
    return integer(match[1]) if match else integer(thread[1])


# Work of MTIA; that of other devices is in a GPU's categories. Calls of all are named after their
# runtime (`mtia_runtime`).
_MTIA_WORK = "mtia_ccp_events"
_MTIA_COPY = "dma"  # what begins so, as Holistic Trace Analysis has it
_MTIA_NO_WORK = ("event_wait", "event_record")  # waits, and marks
_GPUS = frozenset(("cuda", "hip"))
_DEVICE_NAMES = {"privateuse1": "device"}
# What Dynamo and Inductor log of their phases; tlparse writes it to chromium_events.json.
_COMPILATION = "dynamo_timed"
Recorder = Literal["PyTorch", "JAX", "Proton", "torch.compile", "rocprof", "torch_npu"]


def translated(events: Events, unsorted: dict[str, Any]) -> Events:
    """Return the events as Kineto would record them, with the name of their recorder.

    `unsorted` is the table of arguments of spans that have no category.
    """
    categories = set(events.category.values)
    nameless = not categories or (events.category.codes == ABSENT).any()
    if nameless and any(jax_trace.processes(events)):
        return _recorded(jax_trace.from_jax(events, unsorted), "JAX")
    if categories and categories <= CATEGORIES and (categories != {"kernel"} or any(lanes(events))):
        return _recorded(from_proton(events), "Proton")
    if is_ascend(events):
        return _recorded(from_ascend(events), "torch_npu")
    if _COMPILATION in categories:
        return _recorded(_compiled(events), "torch.compile")
    events = _on_one_numbering(_with_accelerator(events))
    if events.metadata.recorder is not None:
        return events
    return _recorded(events, "PyTorch") if "cpu_op" in categories or _has_header(events) else events


def _recorded(events: Events, recorder: Recorder) -> Events:
    recorder_metadata = dataclasses.replace(events.metadata, recorder=recorder)
    return dataclasses.replace(events, metadata=recorder_metadata)


def _has_header(events: Events) -> bool:
    return events.metadata.schema_version is not None


def _compiled(events: Events) -> Events:
    """Return the events with the phases of compilation as what the host did."""
    phase = events.category.where(lambda name: name == _COMPILATION)
    category = jax_trace.with_categories(events.category, np.where(phase, jax_trace.HOST, ABSENT))
    return dataclasses.replace(events, category=category)


def _with_accelerator(events: Events) -> Events:
    """Return the events with all device work in Kineto's categories, and the devices' name."""
    work = events.category.where(lambda name: name == _MTIA_WORK)
    if work.any():
        code = np.where(work, jax_trace.KERNEL, ABSENT)
        code[work & events.name.where(lambda name: name.startswith(_MTIA_COPY))] = jax_trace.COPY
        code[work & events.name.where(lambda name: name.startswith(_MTIA_NO_WORK))] = ABSENT
        category = jax_trace.with_categories(events.category, code)
        events = dataclasses.replace(events, category=category)
    accelerator = "MTIA" if work.any() else _accelerator(events)
    metadata = dataclasses.replace(events.metadata, accelerator=accelerator)
    return dataclasses.replace(events, metadata=metadata)


def _accelerator(events: Events) -> str | None:
    """Return what the runtime's categories call the device; None of GPUs, and where none says."""
    used = np.unique(events.category.codes[events.category.codes != ABSENT]).tolist()
    runtimes: set[str] = {
        name.partition("_")[0]
        for name in (events.category.values[code] for code in used)
        if is_launch(name)
    }
    if len(runtimes) != 1 or runtimes <= _GPUS:
        return None
    (runtime,) = runtimes
    return _DEVICE_NAMES.get(runtime, runtime.upper())


def _on_one_numbering(events: Events) -> Events:
    """Return the events with the allocators' devices numbered as those of the work.

    Work has the driver's numbers, allocations have torch's, which leave out devices that are not
    visible (CUDA_VISIBLE_DEVICES): both in order, where they are as many.
    """
    work, memory = events.device_work.device, events.memory
    on_device = (memory.device_type != 0) & (memory.device != ABSENT)
    torch_numbers, driver_numbers = (
        np.unique(memory.device[on_device]),
        np.unique(work[work != ABSENT]),
    )
    if len(torch_numbers) != len(driver_numbers) or np.array_equal(torch_numbers, driver_numbers):
        return events
    device = memory.device.astype(np.int64)
    device[on_device] = driver_numbers[np.searchsorted(torch_numbers, device[on_device])]
    return dataclasses.replace(events, memory=dataclasses.replace(memory, device=device))
