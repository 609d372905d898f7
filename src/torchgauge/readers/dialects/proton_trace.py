"""Translates traces of Proton: a thread's name has the stream, an arrow the launch of a kernel."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.dialects.details import integer
from torchgauge.readers.dialects.kineto_terms import (
    HOST,
    LAUNCH,
    RANGE,
    device_work,
    launches,
    with_categories,
)
from torchgauge.readers.kineto.categories import PROTON_ARROW
from torchgauge.records.trace.events import ABSENT, Coded, Events, Flows, Integers, Rows, ThreadId

CATEGORIES = frozenset(("kernel", "scope", "metric"))
_LANE = re.compile(r"(?:GPU )?Stream:? (\d+)|(?:CPU Thread|cpu thread) \d+|(Graph): Stream \d+")


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
    work = np.flatnonzero(kernel)
    begins, number = _numbered(events.flows)
    first, count = len(events), int(begins.sum())
    launch_time = events.flows.time[begins]
    stream = np.array([integer(lane[1]) if lane and lane[1] else ABSENT for lane in lane_matches])
    remaining = ~begins
    category = with_categories(events.category, code)
    category = with_categories(
        Coded(np.append(category.codes, np.full(count, ABSENT, np.int32)), category.values),
        np.append(np.full(first, ABSENT), np.full(count, LAUNCH)),
    )
    return dataclasses.replace(
        events,
        start=np.append(events.start, launch_time),
        duration=np.append(events.duration, np.zeros(count, np.int64)),
        name=_names(events, count),
        category=category,
        thread=Coded(
            np.append(events.thread.codes, events.flows.thread[begins]), events.thread.values
        ),
        launches=launches(np.arange(first, first + count), number[begins]),
        device_work=device_work(
            work,
            stream=np.append(stream, ABSENT)[events.thread.codes[work]],
            correlation=_ended(events, work, number),
        ),
        flows=Flows(
            time=events.flows.time[remaining],
            thread=events.flows.thread[remaining],
            id=events.flows.id[remaining],
            category=events.flows.category.take(remaining),
            begins=events.flows.begins[remaining],
        ),
    )


def _names(events: Events, launches: int) -> Coded[str]:
    """Return the names of all spans, followed by those of the launches."""
    names: Interned[str | None] = Interned(None)
    plain, cut = (
        np.array([names[meaning(name)] for name in events.name.values] + [ABSENT], np.int32)
        for meaning in (str, _without_values)
    )
    measured = events.category.where(lambda name: name == "metric")
    codes = np.where(measured, cut[events.name.codes], plain[events.name.codes])
    codes = np.append(codes, np.full(launches, names["launch->kernel"], np.int32))
    return Coded(codes, names.values_by_code())  # type: ignore[arg-type]


def _without_values(name: str) -> str:
    """Return a scope's name without the values that were measured in it: "loss: <value, 0.5>"."""
    return name.partition(": <")[0]


def _numbered(flows: Flows) -> tuple[np.ndarray, Integers]:
    """Return which ends are begins of arrows to kernels, and the number of each, from 1."""
    arrow = flows.category.where(lambda name: name == PROTON_ARROW)
    return arrow & flows.begins, np.where(arrow, np.unique(flows.id, return_inverse=True)[1] + 1, 0)


def _ended(events: Events, work: Rows, number: Integers) -> Integers:
    """Return the number of the arrow that ends where each piece of work begins, ABSENT without."""
    flows = events.flows
    ends = np.flatnonzero((number > 0) & ~flows.begins)
    end_keys = zip(flows.thread[ends].tolist(), flows.time[ends].tolist(), strict=True)
    arrow_numbers = dict(zip(end_keys, number[ends].tolist(), strict=True))
    begin_keys = zip(events.thread.codes[work].tolist(), events.start[work].tolist(), strict=True)
    return np.array([arrow_numbers.get(key, ABSENT) for key in begin_keys], np.int64)
