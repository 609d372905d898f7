"""Translates traces in which arrows lead from launches to device work: of Proton and torch_npu.

In both a thread's name has the stream. Proton's work has a category. That of an NPU is the spans of
the process "Ascend Hardware" in torch_npu's `trace_view.json`; what the host did is in PyTorch's
categories, and other processes have what CANN did and what was derived from the work.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.dialects.details import integer
from torchgauge.readers.dialects.kineto_terms import (
    COPY,
    HOST,
    KERNEL,
    RANGE,
    SET,
    with_arrow_launches,
)
from torchgauge.readers.kineto.categories import NPU_ARROW, PROTON_ARROW
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
    code = np.where(on_graph[events.thread.codes], RANGE, HOST)
    code[kernel] = ABSENT
    numbers = [integer(lane[1]) if lane and lane[1] else ABSENT for lane in lane_matches]
    stream = np.array([*numbers, ABSENT])
    named = dataclasses.replace(events, name=_names(events))
    return with_arrow_launches(named, code, np.flatnonzero(kernel), stream, PROTON_ARROW)


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
    translated = with_arrow_launches(
        events, code, np.flatnonzero(is_work), np.array([*streams, ABSENT]), NPU_ARROW
    )
    metadata = dataclasses.replace(events.metadata, accelerator="NPU")
    return dataclasses.replace(translated, metadata=metadata)


def _categories(events: Events, is_work: np.ndarray) -> Integers:
    code = np.where(is_work, KERNEL, ABSENT)
    code[is_work & events.name.where(lambda name: _COPY.fullmatch(name) is not None)] = COPY
    code[is_work & events.name.where(lambda name: _SET.fullmatch(name) is not None)] = SET
    return code


def _process(events: Events, thread: ThreadId) -> str:
    return events.metadata.process_names.get(thread[0], "")


def _stream(events: Events, thread: ThreadId) -> int:
    match = _STREAM.match(events.metadata.thread_names.get(thread, ""))
    return integer(match[1]) if match else integer(thread[1])
