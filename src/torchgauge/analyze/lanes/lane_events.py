"""The events of a drawing as columns, before they are packed."""

from __future__ import annotations

import dataclasses

import numpy as np

from torchgauge.analyze.lanes.rows import rows
from torchgauge.records.timeline.timeline import Group, Kind
from torchgauge.records.trace.events import ABSENT, Integers, Rows


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
    columns = [
        begin,
        np.maximum(end, begin),
        label,
        *(none if column is None else column for column in (place, source, launch)),
    ]
    order = np.lexsort((-columns[1], begin))
    columns = [column[order] for column in columns]
    row = rows(columns[0], columns[1], tolerance)
    kept = np.flatnonzero(row != ABSENT)
    by_row = kept[np.argsort(row[kept], kind="stable")]
    return LaneEvents(
        name,
        group,
        *(column[by_row] for column in columns),
        row=row[by_row],
        left_out=len(row) - len(kept),
    )


class Labels:
    """The names of events with their kinds, numbered in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Kind], int] = {}

    def number(self, name: str, kind: Kind) -> int:
        """Return the number of a name of a kind."""
        return self._numbers.setdefault((name, kind), len(self._numbers))

    def of(self, names: list[tuple[str, Kind]], codes: Integers) -> Integers:
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
