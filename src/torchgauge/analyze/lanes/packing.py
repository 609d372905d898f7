"""Lanes of events as the record of a timeline."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from torchgauge.analyze.lanes.lane_events import Labels, LaneEvents
from torchgauge.analyze.lanes.numbers import encoded, zigzag
from torchgauge.analyze.lanes.short_events import blocks
from torchgauge.records.timeline.timeline import Kind, Lane, Timeline
from torchgauge.records.trace.events import ABSENT, Integers, Rows

MAX_EVENTS = 1_000_000
MAX_NAMES = 30_000
MAX_TEXT = 1_000_000  # characters of all names
LONGEST_NAME = 500


def packed(
    lanes: Sequence[LaneEvents],
    labels: Labels,
    places: Sequence[tuple[str, str]],
    window: tuple[int, int],
    max_bytes: int,
    max_events: int = MAX_EVENTS,
) -> Timeline:
    """Return the record of these lanes; short events become blocks where there are too many."""
    while True:
        timeline = _packed(lanes, labels, places, window, max_events)
        if len(timeline.columns) <= max_bytes or max_events < 1_000:
            return timeline
        max_events = int(max_events * 0.9 * max_bytes / len(timeline.columns))


def _packed(
    lanes: Sequence[LaneEvents],
    labels: Labels,
    places: Sequence[tuple[str, str]],
    window: tuple[int, int],
    max_events: int,
) -> Timeline:
    number = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    row = number * (1 << 20) + _joined(lanes, "row")
    begin, end = _joined(lanes, "begin") - window[0], _joined(lanes, "end") - window[0]
    block = blocks(begin, end, row, max_events)
    first = np.flatnonzero(np.diff(block, prepend=-1))
    count = np.diff(np.append(first, len(begin)))
    busy = np.add.reduceat(end - begin, first) if len(first) else end
    last = first + count - 1
    names, kinds, name = _names(labels, _joined(lanes, "label")[first], busy)
    merged_label = len(names)
    name = np.where(count > 1, merged_label, name)
    place = np.where(count > 1, 0, _joined(lanes, "place")[first] + 1)
    on_device = np.array([lane.group == "device" for lane in lanes], np.bool_)[number[first]]
    launch = _launches(lanes, block)[first]
    launch[count > 1] = ABSENT
    columns = (
        encoded(zigzag(_gaps(begin[first], end[last], row[first]))),
        encoded(end[last] - begin[first]),
        encoded(name),
        encoded(place),
        encoded(zigzag(np.diff(launch[on_device] + 1, prepend=0))),
        encoded(np.column_stack([count, busy])[count > 1].ravel()),
    )
    return Timeline(
        duration=window[1] - window[0],
        names=(*names, "shorter events"),
        kinds=(*kinds, "merged"),
        places=tuple(places),
        lanes=_lanes(lanes, number[first], row[first]),
        events=len(begin),
        columns=zlib.compress(b"".join(columns), 6),
        sizes=tuple(map(len, columns)),
    )


def _joined(lanes: Sequence[LaneEvents], column: str) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *(getattr(lane, column) for lane in lanes)])


def _gaps(begin: Integers, end: Integers, row: Integers) -> Integers:
    """Return the time from the end before in the row, from 0 for the first."""
    before = np.concatenate([[0], end[:-1]])[: len(begin)]
    before[np.flatnonzero(np.diff(row, prepend=-1))] = 0
    return begin - before


def _names(
    labels: Labels, label: Integers, time: Integers
) -> tuple[tuple[str, ...], tuple[Kind, ...], Integers]:
    """Return the names that take most time, their kinds, and that of each event."""
    names, kinds = labels.names, labels.kinds
    taken = np.bincount(label, time, minlength=len(names)) + np.bincount(label, minlength=len(names))
    order = np.argsort(-taken, kind="stable")[:MAX_NAMES]
    order = order[taken[order] > 0]
    lengths = [min(len(names[index]), LONGEST_NAME) for index in order.tolist()]
    order = order[np.cumsum(lengths) <= MAX_TEXT] if lengths else order
    place = np.full(len(names), len(order))  # of those left out: one name for all
    place[order] = np.arange(len(order))
    shown = tuple(_short(names[index]) for index in order.tolist())
    return (*shown, "another name"), (*(kinds[index] for index in order), "other"), place[label]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 80]}…{name[-80:]}"


def _launches(lanes: Sequence[LaneEvents], block: Rows) -> Rows:
    """Return for each event the block of its launch, ABSENT where none is drawn."""
    source, launch = _joined(lanes, "source"), _joined(lanes, "launch")
    drawn = np.full(max(source.max(initial=0), launch.max(initial=0)) + 2, ABSENT)
    known = source != ABSENT
    drawn[source[known]] = block[known]
    return drawn[launch]  # ABSENT is the place after the last, where none is


def _lanes(lanes: Sequence[LaneEvents], number: Integers, row: Integers) -> tuple[Lane, ...]:
    per_row, counts = np.unique(row, return_counts=True)
    lane_of_row = per_row >> 20
    return tuple(
        Lane(
            name=_short(lane.name),
            group=lane.group,
            rows=tuple(counts[lane_of_row == index].tolist()),
            left_out=lane.left_out,
        )
        for index, lane in enumerate(lanes)
    )
