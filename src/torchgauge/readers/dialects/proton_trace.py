"""Translates traces of Proton: a thread's name has the stream, an arrow the launch of a kernel."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.dialects.details import integer
from torchgauge.readers.dialects.kineto_terms import HOST, RANGE, with_arrow_launches
from torchgauge.readers.kineto.categories import PROTON_ARROW
from torchgauge.records.trace.events import ABSENT, Coded, Events, ThreadId

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
