"""The spans of a trace (`ph` X) in the making: columns for all, tables for what some have.

Few names on few threads make most of a trace. So what comes first of an event, its head, is looked
up once, and all that follows from it is known by its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torchgauge.model.events import (
    ABSENT,
    Coded,
    Collectives,
    DeviceWork,
    Launches,
    Operators,
    PythonCalls,
    Rows,
)
from torchgauge.trace.arguments import Arguments, Uncategorised
from torchgauge.trace.categories import (
    MODULE_CALL,
    PYTHON,
    PYTHON_NAME,
    current_name,
    table_of,
)
from torchgauge.trace.chunks import Event
from torchgauge.trace.columns import Interned, Labels, Parts
from torchgauge.trace.tables import Table
from torchgauge.trace.times import Times, nanoseconds

PythonDetail = Literal["none", "modules", "all"]

_HEAD = attrgetter("name", "cat", "pid", "tid")
_UNWANTED = -2
_NO_TABLE = -1


class Spans:
    """Columns and tables of spans; `threads` is shared with what is no span."""

    def __init__(self, threads: Labels, python: PythonDetail) -> None:
        self._python = python
        self._count = 0
        self.start = Times()
        self._duration = Parts(np.int64)
        self._head = Labels()
        self._head_table: list[int] = []  # by the code of a head
        self._head_thread: list[int] = []
        self._heads = Parts(np.int32)
        self._threads = threads
        self._tables = {
            "operators": Table(
                *("external_id", "index", "older_index", "sequence", "forward_thread"),
                *("dims", "strides", "types", "inputs", "modules"),
            ),
            "launches": Table("correlation", "external_id"),
            "device_work": Table(
                *("device", "stream", "correlation", "external_id", "grid", "block", "registers"),
                *("shared_memory", "blocks_per_sm", "warps_per_sm", "occupancy", "graph_node"),
                *("copied", "bandwidth", "kind"),
            ),
            "python": Table("id", "parent", "module"),
            "unsorted": Table(
                *("correlation_id", "kernel_details", "memcpy_details", "memset_details"),
                *("cuda_graph_node_id", "step_num"),
            ),
        }
        self._collectives = Table(
            *("collective", "dtype", "elements_in", "elements_out", "group"),
            *("group_description", "group_size", "ranks"),
        )

    def add(self, events: list[Event]) -> None:
        """Append the spans of one chunk."""
        heads = self._head.code(map(_HEAD, events), len(events))
        self._learn_heads()
        tables = np.array(self._head_table, dtype=np.int8)[heads]
        wanted = tables != _UNWANTED
        if not wanted.all():
            events = list(compress(events, wanted.tolist()))
            heads, tables = heads[wanted], tables[wanted]
        self.start.add([e.ts for e in events])
        # Negative ones stand in traces of 2022 and before, and mean nothing.
        self._duration.append(np.maximum(nanoseconds([e.dur for e in events]), 0))
        self._heads.append(heads)
        self._add_arguments(tables, events)
        self._count += len(events)

    def _learn_heads(self) -> None:
        """Note what follows from the heads that are new."""
        for name, category, *thread in self._head.values(len(self._head_table)):
            table = self._table(name, category)
            self._head_table.append(table)
            wanted = table != _UNWANTED
            self._head_thread.append(
                int(self._threads.code([tuple(thread)], 1)[0]) if wanted else ABSENT
            )

    def _table(self, name: str, category: str) -> int:
        """Return the number of the table for these, _NO_TABLE or _UNWANTED."""
        python = category == PYTHON or (not category and name.startswith(PYTHON_NAME))
        if python and (
            self._python == "none"
            or (self._python == "modules" and not name.startswith(MODULE_CALL))
        ):
            return _UNWANTED
        table = table_of(category)
        return list(self._tables).index(table) if table else _NO_TABLE

    def _add_arguments(self, tables: NDArray[np.int8], events: list[Event]) -> None:
        arguments = [e.args for e in events]
        for number, (name, columns) in enumerate(self._tables.items()):
            given = [i for i in np.flatnonzero(tables == number).tolist() if arguments[i]]
            if name == "unsorted":
                given = [i for i in given if isinstance(arguments[i], Uncategorised)]
            if not given:
                continue
            found: list[Any] = [arguments[i] for i in given]
            rows = np.array(given, dtype=np.intp) + self._count
            columns.append(found, rows)
            if name in ("operators", "device_work"):
                self._add_collectives(found, rows)

    def _add_collectives(self, found: Sequence[Arguments], rows: Rows) -> None:
        mine = [i for i, item in enumerate(found) if item.collective is not None]
        if mine:
            self._collectives.append([found[i] for i in mine], rows[mine])

    def finish(self, origin: int) -> dict[str, Any]:
        """Return the fields of Events that are about spans, and what those say that are `unsorted`.

        These have no category.
        """
        tables = {name: table.finish() for name, table in self._tables.items()}
        return {
            "start": self.start.finish_from(origin),
            "duration": self._duration.finish(),
            **self._finish_heads(),
            "operators": _operators(tables["operators"]),
            "launches": Launches(**tables["launches"]),
            "device_work": _device_work(tables["device_work"]),
            "collectives": _collectives(self._collectives.finish()),
            "python": PythonCalls(**tables["python"]),
            "unsorted": tables["unsorted"],
        }

    def _finish_heads(self) -> dict[str, Coded[Any]]:
        """Return the columns that heads are made of."""
        heads = self._heads.finish()
        values = self._head.values()
        names: Interned[str | None] = Interned(None)
        categories: Interned[str] = Interned("")
        name, category = np.zeros((2, len(values)), dtype=np.int32)
        for code in np.unique(heads).tolist():  # not those that were left out
            name[code] = names[values[code][0]]
            category[code] = categories[current_name(values[code][1])]
        thread = np.array(self._head_thread, dtype=np.int32)
        return {
            "name": Coded(name[heads], names.values_by_code()),
            "category": Coded(category[heads], categories.values_by_code()),
            "thread": Coded(thread[heads], self._threads.values()),
        }


def _operators(columns: dict[str, Any]) -> Operators:
    older = columns.pop("older_index")
    columns["index"] = np.where(columns["index"] == ABSENT, older, columns["index"])
    return Operators(**columns)


def _device_work(columns: dict[str, Any]) -> DeviceWork:
    columns["size"] = columns.pop("copied")
    columns["bandwidth"] *= 1e9
    percent = columns["occupancy"]
    columns["occupancy"] = np.where(percent > 0, percent / 100, np.nan)
    return DeviceWork(**columns)


def _collectives(columns: dict[str, Any]) -> Collectives:
    columns["name"] = columns.pop("collective")
    # A chunk's operators came before its kernels.
    order = np.argsort(columns["row"], kind="stable")
    for name, column in columns.items():
        columns[name] = column.take(order) if hasattr(column, "take") else column[order]
    return Collectives(**columns)
