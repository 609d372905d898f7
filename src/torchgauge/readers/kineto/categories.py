"""Kinds of events, by the category that Kineto gives them, and their heads: phase, name and thread.

Few names on few threads make most of a trace. So a head is looked up once, and all that follows
from it is known by its code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchgauge.errors import InputError
from torchgauge.readers.columns import Interned, Labels, Parts
from torchgauge.readers.kineto.decoding import Event
from torchgauge.readers.kineto.times import nanoseconds
from torchgauge.records.trace.events import Coded, Codes

PYTHON = "python_function"
MODULE_CALL = "nn.Module:"  # how the names of these begin that are calls of modules
# Functions that are kept without their stacks, as they keep the host from its work: gc.collect and
# Triton's tuning.
COLLECTION = "<built-in function collect>"
TUNING = re.compile(r"(.*/)?triton/runtime/autotuner\.py\(\d+\): _bench")
PYTHON_NAME = "$"  # the same of Python functions in a trace of JAX, which has no categories
PROTON_ARROW = "flow"
NPU_ARROW = "async_npu"
LAUNCH_ARROWS = frozenset(("ac2g", "async_cpu_to_gpu"))
ARROWS = LAUNCH_ARROWS | {"fwdbwd", "forward_backward", PROTON_ARROW, NPU_ARROW}
_RENAMED = {  # as versions before 2023 called them
    "Operator": "cpu_op",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "async_cpu_to_gpu": "ac2g",
    "forward_backward": "fwdbwd",
}
# Tables of spans' arguments, and the categories of each.
TABLES = ("operators", "launches", "device_work", "recorded_waits", "python", "unsorted")
_TABLES = {
    "cpu_op": "operators",
    "user_annotation": "operators",
    "gpu_user_annotation": "operators",
    "kernel": "device_work",
    "gpu_memcpy": "device_work",
    "gpu_memset": "device_work",
    "mtia_ccp_events": "device_work",
    "cuda_sync": "recorded_waits",
    PYTHON: "python",
    "": "unsorted",
}


def current_name(category: str) -> str:
    """Return what today's Kineto calls this category."""
    return _RENAMED.get(category, category)


def is_launch(category: str) -> bool:
    """Return whether spans of this category are calls of a device's runtime: cuda, xpu, mtia."""
    current = current_name(category)
    return current.endswith(("_runtime", "_driver")) or current == "hpu_op"


def table_of(category: str) -> str:
    """Return which table the arguments of this category belong to; empty where none."""
    if is_launch(category):
        return "launches"
    return _TABLES.get(current_name(category), "")


def is_kept_function(name: str) -> bool:
    """Return whether a Python function is kept where only the calls of modules are requested."""
    return name.startswith(MODULE_CALL) or name == COLLECTION or bool(TUNING.fullmatch(name))


# Bytes that reading and analysing need at most: by themselves, per span, per other event.
ITSELF, SPAN, OTHER = 110_000_000, 215, 60
_MAX_SAMPLES = 1 << 20  # sampled times, which tell what share of the events begins before a time


class Fitting(NamedTuple):
    """Events from `until` on are left out (ns as the file has them); `needed` bytes take all.

    `begin` and `end` are the first time and the last.
    """

    until: int
    needed: int
    begin: int
    end: int


def fitting(chunks: Iterable[list[Event]], limit: int, *, functions: bool) -> Fitting | None:
    """Return up to which time events fit into `limit` bytes; None where all of them do.

    `functions`: whether those of Python are kept. Times are sampled: every one of a small file,
    every n-th of a large one. Raises InputError `memory-limit` where nothing fits.
    """
    spans, other_events, stride, passed = 0, 0, 1, 0
    times = np.zeros(0, np.int64)
    for events in chunks:
        kept_events = [e for e in events if e.ts and e.ph != "M" and (functions or e.cat != PYTHON)]
        span_count = sum(e.ph == "X" for e in kept_events)
        spans, other_events = spans + span_count, other_events + len(kept_events) - span_count
        starts = nanoseconds([e.ts for e in kept_events])
        times = np.concatenate([times, starts[-passed % stride :: stride]])
        passed += len(starts)
        while len(times) > _MAX_SAMPLES:
            times, stride = times[::2], 2 * stride
    needed = ITSELF + SPAN * spans + OTHER * other_events
    if needed <= limit:
        return None
    share = (limit - ITSELF) / (needed - ITSELF)
    if share <= 0:
        raise InputError(
            f"No trace can be read within {limit:,} bytes.",
            id="memory-limit",
            cause=f"Reading takes about {ITSELF:,} bytes before the first event.",
            remedy="Give more memory.",
        )
    times.sort()
    until = int(times[int(share * len(times))])
    return Fitting(until, needed, int(times[0]), int(times[-1]))


def before(events: list[Event], until: int) -> list[Event]:
    """Return the events that begin before `until` (ns), and all that name something."""
    timed = [e for e in events if e.ph != "M"]
    times = nanoseconds([e.ts for e in timed]).tolist()
    early = [e for e, time in zip(timed, times, strict=True) if time < until]
    return early + [e for e in events if e.ph == "M"]


PythonDetail = Literal["none", "modules", "all"]

# What an event is; from MEMORY on, something on a thread. A span whose
# arguments go to a table is SPAN + 1 + the table's place.
LEFT_OUT, NAME, END, MEMORY, ARROW, OTHER_SPAN = range(6)

_PARTS = ("ph", "cat", "name", "pid", "tid")
_HEAD = attrgetter(*_PARTS)
_PHASES = {"M": NAME, "B": END, "E": END}
_ALLOCATION = "[memory]"


class Heads:
    """The heads of a trace, and what follows from each, by its code.

    `launch_arrows`: whether arrows from launches to their work are kept.
    """

    def __init__(self, python: PythonDetail, *, launch_arrows: bool) -> None:
        self._python = python
        self._arrows = ARROWS if launch_arrows else ARROWS - LAUNCH_ARROWS
        self._heads = Labels()
        self._threads = Labels()
        self._kind = Parts(np.int8)
        self._thread = Parts(np.int32)

    def code(self, events: list[Event]) -> Codes:
        """Return the code of each event's head."""
        codes = self._heads.code(map(_HEAD, events), len(events))
        new = self._heads.values(len(self._kind))
        if new:
            kinds = [self._kind_of(*head[:3]) for head in new]
            self._kind.append(np.array(kinds))
            placed = zip(new, kinds, strict=True)
            threads = (head[3:] if kind >= MEMORY else None for head, kind in placed)
            self._thread.append(self._threads.code(threads, len(new)))
        return codes

    def kinds(self, heads: Codes) -> NDArray[np.int8]:
        """Return the kinds of events with these heads."""
        event_kinds: NDArray[np.int8] = self._kind.view()[heads]
        return event_kinds

    def threads(self, heads: Codes) -> Coded[Any]:
        """Return the processes and threads of events with these heads."""
        return Coded(self._thread.view()[heads], self._threads.values())

    def column(self, part: str, heads: Codes) -> Coded[Any]:
        """Return a part of the heads of events, which is a field of Event.

        Categories are today's, absent where the file says none.
        """
        index, values = _PARTS.index(part), self._heads.values()
        meaning = current_name if part == "cat" else str
        distinct: Interned[str | None] = Interned("" if part == "cat" else None)
        codes = np.zeros(len(values), np.int32)
        for head in np.unique(heads).tolist():  # not those of other kinds
            codes[head] = distinct[meaning(values[head][index])]
        return Coded(codes[heads], distinct.values_by_code())

    def _kind_of(self, phase: str, category: str, name: str) -> int:
        if phase == "X":
            return self._span(category, name)
        if phase in ("i", "I"):
            return MEMORY if name == _ALLOCATION else LEFT_OUT
        if phase in ("s", "f"):
            return ARROW if category in self._arrows else LEFT_OUT
        return _PHASES.get(phase, LEFT_OUT)

    def _span(self, category: str, name: str) -> int:
        python = category == PYTHON or (not category and name.startswith(PYTHON_NAME))
        if python and (
            self._python == "none" or (self._python == "modules" and not is_kept_function(name))
        ):
            return LEFT_OUT
        table = table_of(category)
        return OTHER_SPAN + 1 + TABLES.index(table) if table else OTHER_SPAN
