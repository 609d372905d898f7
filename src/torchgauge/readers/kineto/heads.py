"""An event's head: its phase, category, name, process and thread.

Few names on few threads make most of a trace. So a head is looked up once, and all that follows
from it is known by its code.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torchgauge.readers.columns import Interned, Labels, Parts
from torchgauge.readers.kineto.categories import (
    ARROWS,
    LAUNCH_ARROWS,
    PYTHON,
    PYTHON_NAME,
    TABLES,
    current_name,
    is_kept_function,
    table_of,
)
from torchgauge.readers.kineto.decoding import Event
from torchgauge.records.trace.events import Coded, Codes

PythonDetail = Literal["none", "modules", "all"]

# What an event is; from MEMORY on, something on a thread. A span whose
# arguments go to a table is SPAN + 1 + the table's place.
LEFT_OUT, NAME, END, MEMORY, ARROW, SPAN = range(6)

_PARTS = ("ph", "cat", "name", "pid", "tid")
_HEAD = attrgetter(*_PARTS)
_PHASES = {"M": NAME, "B": END, "E": END}
_ALLOCATION = "[memory]"


class Heads:
    """The heads of a trace, and what follows from each, by its code.

    `launch_arrows`: whether arrows from launches to their work are kept.
    """

    def __init__(self, python: PythonDetail, *, launch_arrows: bool) -> None:
        self._python = python
        self._arrows = ARROWS if launch_arrows else ARROWS - LAUNCH_ARROWS
        self._heads = Labels()
        self._threads = Labels()
        self._kind = Parts(np.int8)
        self._thread = Parts(np.int32)

    def code(self, events: list[Event]) -> Codes:
        """Return the code of each event's head."""
        codes = self._heads.code(map(_HEAD, events), len(events))
        new = self._heads.values(len(self._kind))
        if new:
            kinds = [self._kind_of(*head[:3]) for head in new]
            self._kind.append(np.array(kinds))
            placed = zip(new, kinds, strict=True)
            threads = (head[3:] if kind >= MEMORY else None for head, kind in placed)
            self._thread.append(self._threads.code(threads, len(new)))
        return codes

    def kinds(self, heads: Codes) -> NDArray[np.int8]:
        """Return the kinds of events with these heads."""
        event_kinds: NDArray[np.int8] = self._kind.view()[heads]
        return event_kinds

    def threads(self, heads: Codes) -> Coded[Any]:
        """Return the processes and threads of events with these heads."""
        return Coded(self._thread.view()[heads], self._threads.values())

    def column(self, part: str, heads: Codes) -> Coded[Any]:
        """Return a part of the heads of events, which is a field of Event.

        Categories are today's, absent where the file says none.
        """
        index, values = _PARTS.index(part), self._heads.values()
        meaning = current_name if part == "cat" else str
        distinct: Interned[str | None] = Interned("" if part == "cat" else None)
        codes = np.zeros(len(values), np.int32)
        for head in np.unique(heads).tolist():  # not those of other kinds
            codes[head] = distinct[meaning(values[head][index])]
        return Coded(codes[heads], distinct.values_by_code())

    def _kind_of(self, phase: str, category: str, name: str) -> int:
        if phase == "X":
            return self._span(category, name)
        if phase in ("i", "I"):
            return MEMORY if name == _ALLOCATION else LEFT_OUT
        if phase in ("s", "f"):
            return ARROW if category in self._arrows else LEFT_OUT
        return _PHASES.get(phase, LEFT_OUT)

    def _span(self, category: str, name: str) -> int:
        python = category == PYTHON or (not category and name.startswith(PYTHON_NAME))
        if python and (
            self._python == "none" or (self._python == "modules" and not is_kept_function(name))
        ):
            return LEFT_OUT
        table = table_of(category)
        return SPAN + 1 + TABLES.index(table) if table else SPAN
