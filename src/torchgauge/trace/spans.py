"""The spans of a trace (`ph` X) in the making: columns for all, tables for what some have."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge.model.events import (
    ABSENT,
    Collectives,
    DeviceWork,
    Launches,
    Operators,
    PythonCalls,
    Rows,
)
from torchgauge.trace import arguments
from torchgauge.trace.categories import MODULE_CALL, PYTHON, current_name, table_of
from torchgauge.trace.chunks import CATEGORY, THREAD, Event
from torchgauge.trace.columns import Labels, Parts
from torchgauge.trace.tables import Table
from torchgauge.trace.times import Times, nanoseconds

PythonDetail = Literal["none", "modules", "all"]

_NAME = attrgetter("name")
_COMMUNICATION = arguments.Communication.__struct_fields__


class Spans:
    """Columns and tables of spans; `threads` is shared with what is no span."""

    def __init__(self, threads: Labels, python: PythonDetail) -> None:
        self._python = python
        self._count = 0
        self.start = Times()
        self._duration = Parts(np.int64)
        self._name, self._category = Labels(), Labels(absent="", meaning=current_name)
        self._threads = threads
        self._thread = Parts(np.int32)
        self._operators = Table(arguments.Operator, without=_COMMUNICATION)
        self._launches = Table(arguments.Launch)
        self._device_work = Table(arguments.Device, without=_COMMUNICATION)
        self._python_calls = Table(arguments.Python)
        self._collectives = Table(arguments.Communication)

    def add(self, events: list[Event]) -> None:
        """Append the spans of one chunk."""
        spans = self._wanted(events)
        count = len(spans)
        self.start.add([e.ts for e in spans])
        # Negative ones stand in traces of 2022 and before, and mean nothing.
        self._duration.append(np.maximum(nanoseconds([e.dur for e in spans]), 0))
        self._name.add(map(_NAME, spans), count)
        self._thread.append(self._threads.code(map(THREAD, spans), count))
        category = self._category.add(map(CATEGORY, spans), count)
        tables = np.array([*map(table_of, self._category.values()), ""])[category]
        self._add_arguments(tables, [e.args for e in spans])
        self._count += count

    def _wanted(self, events: list[Event]) -> list[Event]:
        if self._python == "all":
            return events
        modules = self._python == "modules"
        return [
            e for e in events if e.cat != PYTHON or (modules and e.name.startswith(MODULE_CALL))
        ]

    def _add_arguments(self, tables: NDArray[Any], texts: list[msgspec.Raw]) -> None:
        present = np.fromiter(map(bool, texts), np.bool_, len(texts))
        every: dict[str, Table[Any]] = {
            "operators": self._operators,
            "launches": self._launches,
            "device_work": self._device_work,
            "python": self._python_calls,
        }
        for name, table in every.items():
            rows = np.flatnonzero((tables == name) & present)
            found = table.decode([texts[i] for i in rows.tolist()])
            table.append(found, rows + self._count)
            if table is self._operators or table is self._device_work:
                self._add_collectives(found, rows + self._count)

    def _add_collectives(self, found: list[Any], rows: Rows) -> None:
        mine = [i for i, item in enumerate(found) if item.name is not None]
        if mine:
            self._collectives.append([found[i] for i in mine], rows[mine])

    def finish(self, origin: int) -> dict[str, Any]:
        """Return the fields of Events that are about spans, but for the threads' names."""
        return {
            "start": self.start.finish_from(origin),
            "duration": self._duration.finish(),
            "name": self._name.finish(),
            "category": self._category.finish(),
            "thread": self._thread.finish(),
            "operators": _operators(self._operators.finish()),
            "launches": Launches(**self._launches.finish()),
            "device_work": _device_work(self._device_work.finish()),
            "collectives": _collectives(self._collectives.finish()),
            "python": PythonCalls(**self._python_calls.finish()),
        }


def _operators(columns: dict[str, Any]) -> Operators:
    older = columns.pop("older_index")
    columns["index"] = np.where(columns["index"] == ABSENT, older, columns["index"])
    return Operators(**columns)


def _device_work(columns: dict[str, Any]) -> DeviceWork:
    columns["bandwidth"] *= 1e9
    percent = columns["occupancy"]
    columns["occupancy"] = np.where(percent > 0, percent / 100, np.nan)
    return DeviceWork(**columns)


def _collectives(columns: dict[str, Any]) -> Collectives:
    # A chunk's operators came before its kernels.
    order = np.argsort(columns["row"], kind="stable")
    for name, column in columns.items():
        columns[name] = column.take(order) if hasattr(column, "take") else column[order]
    return Collectives(**columns)
