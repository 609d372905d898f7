"""Traces of JAX and Proton told in Kineto's words, so that all behind reads one language.

The format is the same, what it says is not. Names of processes and threads may come after the
events: all of this is done when everything has been read.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from torchgauge.model.events import ABSENT, Events
from torchgauge.trace.jax_trace import of_jax, processes
from torchgauge.trace.proton_trace import CATEGORIES, lanes, of_proton

Recorder = Literal["PyTorch", "JAX", "Proton"]


def translated(events: Events, unsorted: dict[str, Any]) -> Events:
    """Return the events as Kineto would have them, with the name of who recorded them.

    `unsorted` is the table of arguments of spans that have no category.
    """
    known = set(events.category.values)
    nameless = not known or (events.category.codes == ABSENT).any()
    if nameless and any(processes(events)):
        return _recorded(of_jax(events, unsorted), "JAX")
    if known and known <= CATEGORIES and (known != {"kernel"} or any(lanes(events))):
        return _recorded(of_proton(events), "Proton")
    return _recorded(events, "PyTorch") if "cpu_op" in known or _has_header(events) else events


def _recorded(events: Events, recorder: Recorder) -> Events:
    said = dataclasses.replace(events.metadata, recorder=recorder)
    return dataclasses.replace(events, metadata=said)


def _has_header(events: Events) -> bool:
    return events.metadata.schema_version is not None
