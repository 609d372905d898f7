"""Lanes of events as the record of a timeline."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from typing import cast

import numpy as np

from torchgauge.records.timeline.tree import Group, Kind, Lane, Timeline
from torchgauge.records.trace.events import ABSENT, Integers, Rows

MAX_ROWS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class LaneEvents:
    """One lane's events, in order of row and begin; times in ns.

    `label` numbers the names, `place` the layers and phases (ABSENT without one). `source` is the
    event's place in the recording, ABSENT for what is derived; `launch` that of its launch.
    """

    name: str
    group: Group
    begin: Integers
    end: Integers
    label: Integers
    place: Integers
    source: Rows
    launch: Rows
    row: Integers
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.begin)


def lane(
    name: str,
    group: Group,
    begin: Integers,
    end: Integers,
    label: Integers,
    *,
    place: Integers | None = None,
    source: Rows | None = None,
    launch: Rows | None = None,
    tolerance: int = 0,
) -> LaneEvents:
    """Return a lane of these events, with their rows."""
    none = np.full(len(begin), ABSENT)
    end = np.maximum(end, begin)
    order = np.lexsort((-end, begin))
    row = rows(begin[order], end[order], tolerance)
    drawn = np.flatnonzero(row != ABSENT)
    drawn = drawn[np.argsort(row[drawn], kind="stable")]
    chosen = order[drawn]
    return LaneEvents(
        name=name,
        group=group,
        begin=begin[chosen],
        end=end[chosen],
        label=label[chosen],
        place=(none if place is None else place)[chosen],
        source=(none if source is None else source)[chosen],
        launch=(none if launch is None else launch)[chosen],
        row=row[drawn],
        left_out=len(row) - len(drawn),
    )


def rows(start: Integers, end: Integers, tolerance: int = 0) -> Integers:
    """Return the row of each event, ABSENT for those nested deeper than MAX_ROWS.

    The events are in order of start, the longer first. An event has the first row in which all
    before it have ended; one that reaches into the next by no more than `tolerance` has ended.
    """
    row = np.full(len(start), ABSENT, np.int32)
    waiting = np.arange(len(start))
    for number in range(MAX_ROWS):
        if not len(waiting):
            break
        begin, reach = start[waiting], np.maximum.accumulate(end[waiting])
        before = np.concatenate([[np.iinfo(np.int64).min // 2], reach[:-1]])
        fits = begin >= before
        if tolerance:
            fits |= (begin >= before - tolerance) & (end[waiting] > before)
        row[waiting[fits]] = number
        waiting = waiting[~fits]
    return row


class Labels:
    """The names of events with their kinds, numbered in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Kind], int] = {}

    def number(self, name: str, kind: Kind) -> int:
        """Return the number of a name of a kind."""
        return self._numbers.setdefault((name, kind), len(self._numbers))

    def numbers(self, names: list[tuple[str, Kind]], codes: Integers) -> Integers:
        """Return the number of `names[code]` for each code."""
        used = np.unique(codes)
        table = np.full(len(names), ABSENT)
        table[used] = [self.number(*names[code]) for code in used.tolist()]
        return table[codes]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(name for name, _ in self._numbers)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each."""
        return tuple(kind for _, kind in self._numbers)


MAX_EVENTS = 1_000_000
MAX_NAMES = 30_000
MAX_TEXT = 1_000_000  # characters of all names
LONGEST_NAME = 500
_BITS = 7  # of a number in each byte of LEB128, the lowest first


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
        lanes=_lanes(lanes, row[first]),
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
    return cast("Integers", begin - before)


def _names(
    labels: Labels, label: Integers, time: Integers
) -> tuple[tuple[str, ...], tuple[Kind, ...], Integers]:
    """Return the names that take most time, their kinds, and that of each event."""
    names, kinds = labels.names, labels.kinds
    weight = np.bincount(label, time, minlength=len(names)) + np.bincount(
        label, minlength=len(names)
    )
    order = np.argsort(-weight, kind="stable")[:MAX_NAMES]
    order = order[weight[order] > 0]
    lengths = [min(len(names[index]), LONGEST_NAME) for index in order.tolist()]
    order = order[np.cumsum(lengths) <= MAX_TEXT] if lengths else order
    place = np.full(len(names), len(order))  # of those left out: one name for all
    place[order] = np.arange(len(order))
    kept_names = tuple(_short(names[index]) for index in order.tolist())
    return (
        (*kept_names, "another name"),
        (*(kinds[index] for index in order), "other"),
        place[label],
    )


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 80]}…{name[-80:]}"


def _launches(lanes: Sequence[LaneEvents], block: Rows) -> Rows:
    """Return for each event the block of its launch, ABSENT where none is drawn."""
    source, launch = _joined(lanes, "source"), _joined(lanes, "launch")
    drawn = np.full(max(source.max(initial=0), launch.max(initial=0)) + 2, ABSENT)
    recorded = source != ABSENT
    drawn[source[recorded]] = block[recorded]
    return cast("Integers", drawn[launch])  # ABSENT is the place after the last, where none is


def _lanes(lanes: Sequence[LaneEvents], row: Integers) -> tuple[Lane, ...]:
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


def blocks(begin: Integers, end: Integers, row: Integers, max_blocks: int) -> Rows:
    """Return the number of the block that each event is in; long events have one of their own.

    The events are by row (numbered over all lanes) and begin. The time is cut into equal parts;
    neighbours in a row that begin in the same part and are shorter than a part share a block. The
    parts are as short as they can be with `max_blocks` (to an eighth), or as one part for the whole
    time gives.
    """
    count = len(begin)
    if count <= max_blocks:
        return np.arange(count)
    new_row = np.diff(row) != 0
    last = max(int(end.max()), 1).bit_length() + 1
    low, high = 0, 8 * last  # exponents of two, in eighths
    while high - low > 1:
        middle = (low + high) // 2
        if _numbered(begin, end, new_row, middle)[-1] < max_blocks:
            high = middle
        else:
            low = middle
    return _numbered(begin, end, new_row, high)


def _numbered(begin: Integers, end: Integers, new_row: np.ndarray, eighths: int) -> Rows:
    width = max(int(2 ** (eighths / 8)), 1)
    is_long = end - begin >= width
    part = begin // width
    separate = (np.diff(part) != 0) | new_row | is_long[1:] | is_long[:-1]
    return np.cumsum(np.concatenate([[False], separate]))


def encoded(values: Integers) -> bytes:
    """Return numbers that are not negative as LEB128."""
    numbers = values.astype(np.uint64)
    limits = np.array([1 << (_BITS * count) for count in range(1, 10)], np.uint64)
    length = np.searchsorted(limits, numbers, side="right") + 1
    position = np.cumsum(length) - length
    data = np.zeros(int(length.sum()), np.uint8)
    for number in range(int(length.max(initial=0))):
        longer = np.flatnonzero(length > number)
        septet = (numbers[longer] >> np.uint64(_BITS * number)) & np.uint64(0x7F)
        continued = (length[longer] > number + 1).astype(np.uint64) << np.uint64(_BITS)
        data[position[longer] + number] = septet | continued
    return data.tobytes()


def zigzag(values: Integers) -> Integers:
    """Return signed numbers as others that are not negative: 0, −1, 1, −2 become 0, 1, 2, 3."""
    signed = values.astype(np.int64)
    return (signed << 1) ^ (signed >> 63)
