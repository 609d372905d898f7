"""Builds Kineto's categories and tables for traces of other recorders."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from torchgauge.readers.columns import Interned
from torchgauge.readers.kineto.categories import PYTHON
from torchgauge.records.trace.events import (
    ABSENT,
    Coded,
    DeviceWork,
    Events,
    Flows,
    Integers,
    Launches,
    Rows,
)

_NAMES = ("cpu_op", "user_annotation", PYTHON, "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset",
          "gpu_user_annotation", "launch")  # fmt: skip
(HOST, MARK, FUNCTION, CALL, KERNEL, COPY, SET, RANGE, LAUNCH) = range(len(_NAMES))


def with_categories(category: Coded[str], code: Integers) -> Coded[str]:
    """Return the categories, replaced where `code` is one of the numbers above."""
    names: Interned[str | None] = Interned(None)
    original = np.array([names[name] for name in category.values] + [ABSENT], np.int32)
    original = original[category.codes]
    used = set(code.tolist())
    replacement = np.array(
        [names[name] if index in used else ABSENT for index, name in enumerate(_NAMES)] + [ABSENT],
        np.int32,
    )[code]
    return Coded(np.where(code == ABSENT, original, replacement), names.values_by_code())  # type: ignore[arg-type]


def launches(row: Rows, correlation: Integers) -> Launches:
    """Return the table of launches with these rows."""
    return Launches(row=row, correlation=correlation, external_id=np.full(len(row), ABSENT))


def device_work(row: Rows, **known_columns: Any) -> DeviceWork:
    """Return the table of these rows; columns that are not given are absent."""
    count = len(row)
    triple = np.full((count, 3), ABSENT)
    columns: dict[str, Any] = {"grid": triple, "block": triple}
    columns |= {name: np.full(count, np.nan) for name in
                ("blocks_per_sm", "warps_per_sm", "occupancy", "bandwidth")}  # fmt: skip
    columns |= {name: np.full(count, ABSENT) for name in
                ("device", "stream", "correlation", "external_id", "registers", "shared_memory",
                 "graph_node", "size")}  # fmt: skip
    columns["kind"] = Coded[str](np.full(count, ABSENT, np.int32), ())
    return DeviceWork(row=row, **(columns | known_columns))


def with_arrow_launches(
    events: Events, code: Integers, work: Rows, stream: Integers, arrow: str
) -> Events:
    """Return the events with device work, and with a launch where an arrow to it begins.

    `code` is the category of each span as a number above (ABSENT where unchanged), `work` the rows
    of device work, `stream` the stream of each thread and at last ABSENT, `arrow` the category of
    the arrows.
    """
    begins, number = _numbered(events.flows, arrow)
    first, count = len(events), int(begins.sum())
    launch_time = events.flows.time[begins]
    category = with_categories(events.category, code)
    category = with_categories(
        Coded(np.append(category.codes, np.full(count, ABSENT, np.int32)), category.values),
        np.append(np.full(first, ABSENT), np.full(count, LAUNCH)),
    )
    name = events.name
    launch_name = np.full(count, len(name.values), np.int32)
    flows, remaining = events.flows, ~begins
    return dataclasses.replace(
        events,
        start=np.append(events.start, launch_time),
        duration=np.append(events.duration, np.zeros(count, np.int64)),
        name=Coded(np.append(name.codes, launch_name), (*name.values, "launch->kernel")),
        category=category,
        thread=Coded(np.append(events.thread.codes, flows.thread[begins]), events.thread.values),
        launches=launches(np.arange(first, first + count), number[begins]),
        device_work=device_work(
            work,
            stream=stream[events.thread.codes[work]],
            correlation=_ended(events, work, number),
        ),
        flows=Flows(
            time=flows.time[remaining],
            thread=flows.thread[remaining],
            id=flows.id[remaining],
            category=flows.category.take(remaining),
            begins=flows.begins[remaining],
        ),
    )


def _numbered(flows: Flows, category: str) -> tuple[np.ndarray, Integers]:
    """Return which ends are begins of arrows to kernels, and the number of each, from 1."""
    arrow = flows.category.where(lambda name: name == category)
    return arrow & flows.begins, np.where(arrow, np.unique(flows.id, return_inverse=True)[1] + 1, 0)


def _ended(events: Events, work: Rows, number: Integers) -> Integers:
    """Return the number of the arrow that ends where each piece of work begins, ABSENT without."""
    flows = events.flows
    ends = np.flatnonzero((number > 0) & ~flows.begins)
    end_keys = zip(flows.thread[ends].tolist(), flows.time[ends].tolist(), strict=True)
    arrow_numbers = dict(zip(end_keys, number[ends].tolist(), strict=True))
    begin_keys = zip(events.thread.codes[work].tolist(), events.start[work].tolist(), strict=True)
    return np.array([arrow_numbers.get(key, ABSENT) for key in begin_keys], np.int64)
