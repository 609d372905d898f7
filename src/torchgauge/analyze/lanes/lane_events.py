"""The events of a drawing as columns, before they are packed: lanes, and the rows of each."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.records.timeline.timeline import Group, Kind
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
