"""Timelines of any size: a thread that launches a stream's kernels, in layers. And their reading.

What is read is decoded by the words of the record's docstring, apart from what encodes it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.lanes.recorded_lanes import Labels, lane, packed
from torchgauge.records.timeline.tree import Timeline

LAUNCHES_PER_LAYER = 50


def synthetic(events: int, *, max_bytes: int = 5_500_000, max_events: int = 1_000_000) -> Timeline:
    """Return a timeline of about so many events; a fifth of them are kernels."""
    rng = np.random.default_rng(events)
    count = events // 5
    labels = Labels()
    operators = np.array([labels.number(f"aten::op_{n}", "operator") for n in range(300)])
    kernels = np.array(
        [labels.number(f"void at::kernel_{n}<4, float>(int)", "compute") for n in range(200)]
    )
    call = labels.number("cudaLaunchKernel", "call")
    numbers = np.arange(count)
    begin = np.cumsum(rng.gamma(2, 2500, count).astype(np.int64) + 8000)
    end = begin + 7000 + rng.integers(0, 900, count)
    inner, inner_end = begin + 500 + rng.integers(0, 400, count), end - 300
    launch = begin + 2000 + rng.integers(0, 800, count)
    time = rng.gamma(1.5, 4000, count).astype(np.int64) + 800
    done = np.cumsum(time + 700)
    start = np.maximum.accumulate(launch + 4000 - (done - time - 700)) + (done - time - 700)
    first = numbers[::LAUNCHES_PER_LAYER]
    last = np.minimum(first + LAUNCHES_PER_LAYER, count) - 1
    layers = np.array([labels.number(f"layers.{n % 200}", "layer") for n in range(len(first))])
    host = lane(
        "python, thread 1",
        "host",
        np.concatenate([begin[first] - 300, begin, inner, launch]),
        np.concatenate([end[last] + 100, end, inner_end, launch + 3000]),
        np.concatenate(
            [
                layers,
                operators[numbers * 7919 % 300],
                operators[numbers * 104729 % 300],
                np.full(count, call),
            ]
        ),
        source=np.concatenate([np.full(len(first), -1), np.arange(3 * count)]),
    )
    device = lane(
        "GPU 0, stream 7",
        "device",
        start,
        start + time,
        kernels[numbers * 31 % 200],
        source=numbers + 3 * count,
        launch=numbers + 2 * count,
    )
    pauses = np.flatnonzero(start[1:] > (start + time)[:-1])
    waits = np.full(len(pauses), labels.number("idle: host", "idle: host"))
    idle = lane("GPU 0: idle, by cause", "idle", (start + time)[pauses], start[pauses + 1], waits)
    window = (0, int(max((start + time)[-1], end[-1] + 100)))
    return packed([idle, device, host], labels, (), window, max_bytes, max_events)


class Drawn(NamedTuple):
    """An event as the page has it; `launch` is the place of its launch among all, None without."""

    lane: str
    row: int
    name: str
    kind: str
    begin: int
    duration: int
    layer: str
    phase: str
    launch: int | None
    count: int
    busy: int


def drawn(timeline: Timeline) -> list[Drawn]:
    """Return all events of a timeline in its order."""
    data, columns, start = zlib.decompress(timeline.columns), [], 0
    for size in timeline.sizes:
        columns.append(_numbers(data[start : start + size]))
        start += size
    gaps, durations, names, places, launches, merged = columns
    found: list[Drawn] = []
    launch = 0
    rows = [(one, row, count) for one in timeline.lanes for row, count in enumerate(one.rows)]
    for one, row, count in rows:
        time = 0
        for _ in range(count):
            time += _signed(next(gaps))
            duration, name, place = next(durations), next(names), next(places)
            launch += _signed(next(launches)) if one.group == "device" else 0
            kind = timeline.kinds[name]
            found.append(
                Drawn(
                    one.name,
                    row,
                    timeline.names[name],
                    kind,
                    time,
                    duration,
                    *(timeline.places[place - 1] if place else ("", "")),
                    launch=launch - 1 if one.group == "device" and launch else None,
                    count=next(merged) if kind == "merged" else 1,
                    busy=next(merged) if kind == "merged" else duration,
                )
            )
            time += duration
    assert [next(column, None) for column in columns] == [None] * len(columns)
    return found


def _numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def _signed(value: int) -> int:
    return -(value + 1) // 2 if value % 2 else value // 2
