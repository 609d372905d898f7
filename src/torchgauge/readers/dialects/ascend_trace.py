"""Translates traces of torch_npu (`trace_view.json`): a process has the work of Ascend's NPU.

What the host did is in PyTorch's categories. Work is the spans of the process "Ascend Hardware",
whose threads are streams, and an arrow leads to it from the operator that launched it. Other
processes have what CANN did and what was derived from the work.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from torchgauge.readers.dialects.details import integer
from torchgauge.readers.dialects.kineto_terms import COPY, KERNEL, SET, with_arrow_launches
from torchgauge.readers.kineto.categories import NPU_ARROW
from torchgauge.records.trace.events import ABSENT, Events, Integers, ThreadId

_HARDWARE = "Ascend Hardware"
_STREAM = re.compile(r"Stream (\d+)")
_COPY = re.compile(r"\w*memcpy\w*|SDMA\w*", re.IGNORECASE)
_SET = re.compile(r"\w*memset\w*", re.IGNORECASE)
# Tasks that wait or mark.
_NO_WORK = re.compile(r"(EVENT|NOTIFY|Notify)_\w+|PROFILING_\w+|Capture\w*")


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
