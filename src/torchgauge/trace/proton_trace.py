"""Traces of Proton: the name of a kernel's thread says its stream, an arrow who launched it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import numpy as np

from torchgauge.model.events import ABSENT, Coded, Events, Flows, Integers, Rows, ThreadId
from torchgauge.trace.categories import PROTON_ARROW
from torchgauge.trace.columns import Interned
from torchgauge.trace.details import integer
from torchgauge.trace.retold import HOST, LAUNCH, RANGE, device_work, launches, with_categories

CATEGORIES = frozenset(("kernel", "scope", "metric"))
_LANE = re.compile(r"(?:GPU )?Stream:? (\d+)|(?:CPU Thread|cpu thread) \d+|(Graph): Stream \d+")


def _lane(events: Events, thread: ThreadId) -> re.Match[str] | None:
    """Return what the name says that Proton gave a thread; older versions have it as its number."""
    return _LANE.fullmatch(events.metadata.thread_names.get(thread, str(thread[1])))


def lanes(events: Events) -> Iterable[re.Match[str] | None]:
    """Yield of each thread what its name says, None for names that are not Proton's."""
    return (_lane(events, thread) for thread in events.thread.values)


def of_proton(events: Events) -> Events:
    """Return the events with streams, and with a launch where an arrow begins."""
    found = list(lanes(events))
    kernel = events.category.where(lambda name: name == "kernel")
    on_graph = np.array([bool(lane and lane[2]) for lane in found] + [False])
    code = np.where(on_graph[events.thread.codes], RANGE, HOST)
    code[kernel] = ABSENT
    work = np.flatnonzero(kernel)
    begins, number = _numbered(events.flows)
    first, count = len(events), int(begins.sum())
    at = events.flows.time[begins]
    stream = np.array([integer(lane[1]) if lane and lane[1] else ABSENT for lane in found])
    kept = ~begins
    category = with_categories(events.category, code)
    category = with_categories(
        Coded(np.append(category.codes, np.full(count, ABSENT, np.int32)), category.values),
        np.append(np.full(first, ABSENT), np.full(count, LAUNCH)),
    )
    return dataclasses.replace(
        events,
        start=np.append(events.start, at),
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
            time=events.flows.time[kept],
            thread=events.flows.thread[kept],
            id=events.flows.id[kept],
            category=events.flows.category.take(kept),
            begins=events.flows.begins[kept],
        ),
    )


def _names(events: Events, launches: int) -> Coded[str]:
    """Return the names of all spans, and those of so many launches behind them."""
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
    """Return which ends are begins of arrows to kernels, and the number of each arrow from 1 on."""
    arrow = flows.category.where(lambda name: name == PROTON_ARROW)
    return arrow & flows.begins, np.where(arrow, np.unique(flows.id, return_inverse=True)[1] + 1, 0)


def _ended(events: Events, work: Rows, number: Integers) -> Integers:
    """Return the number of the arrow that ends where each piece of work begins, ABSENT without."""
    flows = events.flows
    ends = np.flatnonzero((number > 0) & ~flows.begins)
    at = zip(flows.thread[ends].tolist(), flows.time[ends].tolist(), strict=True)
    found = dict(zip(at, number[ends].tolist(), strict=True))
    begin = zip(events.thread.codes[work].tolist(), events.start[work].tolist(), strict=True)
    return np.array([found.get(key, ABSENT) for key in begin], np.int64)
