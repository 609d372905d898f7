"""Translates traces of other recorders to Kineto's terms, so that later code reads one dialect.

The file format is the same, its terms are not. Names of processes and threads may come after the
events: all of this is done when everything has been read.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from torchgauge.readers.dialects.arrow_traces import (
    CATEGORIES,
    from_ascend,
    from_proton,
    is_ascend,
    lanes,
)
from torchgauge.readers.dialects.jax_trace import from_jax, processes
from torchgauge.readers.dialects.kineto_terms import HOST, KERNEL, with_categories
from torchgauge.readers.kineto.categories import is_launch
from torchgauge.records.trace.events import ABSENT, Events

# Work of MTIA; that of other devices is in a GPU's categories. Calls of all are named after their
# runtime (`mtia_runtime`).
_MTIA_WORK = "mtia_ccp_events"
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
    if nameless and any(processes(events)):
        return _recorded(from_jax(events, unsorted), "JAX")
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
    category = with_categories(events.category, np.where(phase, HOST, ABSENT))
    return dataclasses.replace(events, category=category)


def _with_accelerator(events: Events) -> Events:
    """Return the events with all device work in Kineto's categories, and the devices' name."""
    work = events.category.where(lambda name: name == _MTIA_WORK)
    if work.any():
        category = with_categories(events.category, np.where(work, KERNEL, ABSENT))
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
