"""Translates what Kineto records of devices that are no GPUs: their work, and what they are called.

Kineto names the categories of a device's runtime after it (`mtia_runtime`); its work is in the same
categories as a GPU's, but for MTIA's.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.readers.dialects.kineto_terms import KERNEL, with_categories
from torchgauge.readers.kineto.categories import is_launch
from torchgauge.records.trace.events import ABSENT, Events

_WORK = "mtia_ccp_events"
_GPUS = frozenset(("cuda", "hip"))
_NAMES = {"privateuse1": "device"}


def with_accelerator(events: Events) -> Events:
    """Return the events with all device work in Kineto's categories, and the devices' name."""
    work = events.category.where(lambda name: name == _WORK)
    if work.any():
        category = with_categories(events.category, np.where(work, KERNEL, ABSENT))
        events = dataclasses.replace(events, category=category)
    accelerator = "MTIA" if work.any() else _accelerator(events)
    metadata = dataclasses.replace(events.metadata, accelerator=accelerator)
    return dataclasses.replace(events, metadata=metadata)


def _accelerator(events: Events) -> str | None:
    """Return what the runtime's categories call the device; None of GPUs, and where none says."""
    used = np.unique(events.category.codes[events.category.codes != ABSENT]).tolist()
    runtimes = {
        name.partition("_")[0]
        for name in (events.category.values[code] for code in used)
        if is_launch(name)
    }
    if len(runtimes) != 1 or runtimes <= _GPUS:
        return None
    (runtime,) = runtimes
    return _NAMES.get(runtime, runtime.upper())
