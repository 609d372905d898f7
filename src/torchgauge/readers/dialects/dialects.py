"""Translates traces of JAX and Proton to Kineto's terms, so that later code reads one dialect.

The file format is the same, its terms are not. Names of processes and threads may come after the
events: all of this is done when everything has been read.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from torchgauge.readers.dialects.accelerators import with_accelerator
from torchgauge.readers.dialects.jax_trace import from_jax, processes
from torchgauge.readers.dialects.proton_trace import CATEGORIES, from_proton, lanes
from torchgauge.records.trace.events import ABSENT, Events

Recorder = Literal["PyTorch", "JAX", "Proton"]


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
    events = with_accelerator(events)
    return _recorded(events, "PyTorch") if "cpu_op" in categories or _has_header(events) else events


def _recorded(events: Events, recorder: Recorder) -> Events:
    recorder_metadata = dataclasses.replace(events.metadata, recorder=recorder)
    return dataclasses.replace(events, metadata=recorder_metadata)


def _has_header(events: Events) -> bool:
    return events.metadata.schema_version is not None
