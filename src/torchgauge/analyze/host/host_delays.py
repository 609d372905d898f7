"""Spans of the host that keep it from launching work, by cause, and what of them a device waited.

A time counts once: where causes are inside one another, for the first of CAUSES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import numpy as np

from torchgauge.analyze.timeline.attribution import HOST, NONE, OPTIMIZER, Spans
from torchgauge.analyze.timeline.device_time import Intervals, union
from torchgauge.analyze.timeline.launches import Launched
from torchgauge.analyze.trace.dependencies import Waits
from torchgauge.analyze.trace.device_work import Activities
from torchgauge.analyze.trace.idle_times import HOST_WAIT, gaps
from torchgauge.readers.kineto.categories import COLLECTION, PYTHON, TUNING
from torchgauge.records.trace.events import ABSENT, Coded, Events, Integers, Rows
from torchgauge.records.trace.host_delay import Cause, HostDelay

Pauses = dict[int, Intervals]  # by thread


def host_pauses(activities: Activities, thread: Integers) -> Pauses:
    """Return these pauses of the device that waits longest; `thread` launched each activity."""
    longest, pauses = -1, Pauses()
    for device in np.unique(activities.device).tolist():
        on_device = np.flatnonzero(activities.device == device)
        begin, length, cause, ended_by = gaps(activities.take(on_device))
        waits = cause == HOST_WAIT
        if (total := int(length[waits].sum())) > longest:
            begin, end = begin[waits], (begin + length)[waits]
            ended_by_thread = thread[on_device][ended_by[waits]]
            longest = total
            pauses = {
                code: Intervals(begin[ended_by_thread == code], end[ended_by_thread == code])
                for code in np.unique(ended_by_thread).tolist()
            }
    return pauses


def caused_by_waits(waits: Waits, pauses: Pauses) -> Integers:
    """Return by wait for the device, in ns, how much of the pauses it can have caused at most.

    A host that does not wait is ahead by the time of the wait, and pauses shrink until that is
    used up, the next ones first. So none is told to have cost more than it took, nor all of them
    together more than the pauses. Of several waits the latest before a pause caused it.
    """
    caused = [0] * len(waits.row)
    for thread, on_thread in pauses.items():
        indices = np.flatnonzero(waits.thread == thread)  # in order of their ends
        if not len(indices):
            continue
        waiting = iter(_timed(indices.tolist(), waits.begin[indices], waits.end[indices]))
        next_wait = next(waiting, None)
        ahead: list[tuple[int, int]] = []  # waits before the pause, and the lead left of each
        for begin, end in zip(on_thread.begin.tolist(), on_thread.end.tolist(), strict=True):
            while next_wait is not None and next_wait[2] < end:
                ahead.append((next_wait[0], next_wait[2] - next_wait[1]))
                next_wait = next(waiting, None)
            remaining = end - begin
            while remaining and ahead:
                index, lead = ahead.pop()
                used = min(lead, remaining)
                caused[index] += used
                remaining -= used
                if lead > used:
                    ahead.append((index, lead - used))
    return np.array(caused, np.int64)


def _timed(indices: list[int], begin: Integers, end: Integers) -> Iterator[tuple[int, int, int]]:
    return zip(indices, begin.tolist(), end.tolist(), strict=True)


CAUSES: tuple[Cause, ...] = get_args(Cause)
_CALLS = ("cuda_runtime", "cuda_driver")
# Those that the device does in order (cudaMallocAsync) cost the host little.
ALLOCATIONS = re.compile(
    r"(cuda|hip)(Malloc|Free)(Host|Managed|Pitch|3D|Array)?|cudaHost(Alloc|Register|Unregister)"
    r"|hipHost(Malloc|Free|Register|Unregister)"
    r"|cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|HostAlloc|FreeHost)(_v2)?"
)
_MODULES = re.compile(r"(cu|hip)(Module|Library|Kernel)(Load|Get|Unload)\w*|cudaFuncGetAttributes")
# ns: a launch takes 5 µs, with the code of the kernel to be loaded 100 µs to many ms.
_LONG_LAUNCH = 100_000
# Dynamo's and Inductor's own phases.
_COMPILATION = " (dynamo_timed)"
# torch's own range, and Lightning's around it.
_LOADING = re.compile(r"enumerate\(DataLoader\)#.*|.*\.(train|val)_dataloader_next")
# Fused ones (Apex's, FBGEMM's) say so, though they launch kernels that are no operators.
_STEP = re.compile(r"Optimizer\.step#(?!Fused)")
# Operators of one step of the optimizer: fewer are no loop over parameters.
_LOOP = 20


def host_delays(
    events: Events, spans: Spans, work: Launched, pauses: Pauses
) -> tuple[tuple[HostDelay, ...], Pauses]:
    """Return the delays that the events show, and the pauses without them."""
    has_device = len(work.row) > 0
    threads = np.unique(events.thread.codes[work.call[work.launched]])
    if not has_device:
        threads = _working_thread(events, spans)
    rows_by_cause = _rows_by_cause(events, spans, work)
    empty = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    delays: list[HostDelay] = []
    remaining = dict(pauses)
    claimed: dict[int, Intervals] = {}
    for cause, cause_rows in rows_by_cause.items():
        figures: dict[str, list[int]] = {}
        for thread in threads.tolist():
            rows = cause_rows[events.thread.codes[cause_rows] == thread]
            if not len(rows):
                continue
            rows = _outermost(events, rows)
            begin, end = events.start[rows], events.start[rows] + events.duration[rows]
            before, pause = claimed.get(thread, empty), remaining.get(thread, empty)
            time = end - begin - _within(before, begin, end)
            _add(figures, events.name.take(rows), time, _within(pause, begin, end))
            window = int(events.start.min()), int((events.start + events.duration).max())
            claimed[thread] = union(
                np.concatenate([before.begin, begin]), np.concatenate([before.end, end]), window
            )
            if thread in remaining:
                remaining[thread] = remaining[thread].outside(claimed[thread])
        delays += [
            HostDelay(
                cause=cause,
                name=name,
                calls=calls,
                time=time * 1e-9,
                longest=longest * 1e-9,
                idle=idle * 1e-9 if has_device else None,
            )
            for name, (calls, time, longest, idle) in figures.items()
        ]
    return tuple(sorted(delays, key=lambda delay: -delay.time)), remaining


def _rows_by_cause(events: Events, spans: Spans, work: Launched) -> dict[Cause, Rows]:
    name = events.name
    is_call = events.category.where(lambda category: category in _CALLS)
    is_host = events.category.where(lambda category: category in HOST)
    is_python = events.category.where(lambda category: category == PYTHON)
    compiles = is_host & name.where(lambda text: text.endswith(_COMPILATION))
    compiles |= is_python & name.where(lambda text: TUNING.fullmatch(text) is not None)
    modules = is_call & name.where(lambda text: _MODULES.fullmatch(text) is not None)
    modules[_long_first_launches(events, work)] = True
    masks: dict[Cause, np.ndarray] = {
        "garbage collection": is_python & name.where(lambda text: text == COLLECTION),
        "allocation": is_call & name.where(lambda text: ALLOCATIONS.fullmatch(text) is not None),
        "first launch": modules,
        "compilation": compiles,
        "data loading": is_host & name.where(lambda text: _LOADING.fullmatch(text) is not None),
        "optimizer loop": _optimizer_loops(events, spans),
    }
    return {cause: np.flatnonzero(masks[cause]) for cause in CAUSES}


def _long_first_launches(events: Events, work: Launched) -> Rows:
    """Return the calls that launched a kernel as the first of its name, and took long."""
    first = np.unique(events.name.codes[work.row], return_index=True)[1]
    calls = work.call[first][work.launched[first]]
    launches = events.name.take(calls).where(lambda name: "LaunchKernel" in name)
    long_launches: Rows = calls[launches & (events.duration[calls] >= _LONG_LAUNCH)]
    return long_launches


def _optimizer_loops(events: Events, spans: Spans) -> np.ndarray:
    """Return which events are steps of an optimizer that goes through its parameters one by one."""
    is_loop = np.zeros(len(events), np.bool_)
    names = events.name.take(spans.row)
    steps = np.flatnonzero(names.where(lambda name: _STEP.match(name) is not None))
    inside = spans.phase == OPTIMIZER
    operators = inside & names.where(lambda name: name.startswith("aten::"))
    batched = inside & names.where(lambda name: name.startswith(("aten::_foreach", "aten::_fused")))
    if len(steps) and not batched.any() and operators.sum() >= _LOOP * len(steps):
        is_loop[spans.row[steps]] = True
    return is_loop


def _working_thread(events: Events, spans: Spans) -> Integers:
    """Return the thread whose operators take most of the time."""
    if not len(spans.row):
        return np.zeros(0, np.int64)
    is_operator = events.category.take(spans.row).where(lambda category: category == "cpu_op")
    outer = is_operator & (spans.parent == NONE)
    outer = outer if outer.any() else is_operator
    time = np.bincount(spans.thread, np.where(outer, spans.nesting.total_time, 0))
    return np.array([int(np.argmax(time))])


def _outermost(events: Events, rows: Rows) -> Rows:
    """Return those of one thread's rows that are in no other of them, as they began."""
    rows = rows[np.lexsort((-events.duration[rows], events.start[rows]))]
    end = np.maximum.accumulate(events.start[rows] + events.duration[rows])
    within = np.concatenate([[False], events.start[rows][1:] < end[:-1]])
    outermost: Rows = rows[~within]
    return outermost


def _within(intervals: Intervals, begin: Integers, end: Integers) -> Integers:
    lengths: Integers = intervals.before(end) - intervals.before(begin)
    return lengths


def _add(figures: dict[str, list[int]], names: Coded[str], time: Integers, idle: Integers) -> None:
    """Add calls, time, longest and idle time to the figures of each name."""
    for code in np.unique(names.codes).tolist():
        if code == ABSENT:
            continue
        chosen = names.codes == code
        entry = figures.setdefault(names.values[code], [0, 0, 0, 0])
        entry[0] += int(chosen.sum())
        entry[1] += int(time[chosen].sum())
        entry[2] = max(entry[2], int(time[chosen].max()))
        entry[3] += int(idle[chosen].sum())
