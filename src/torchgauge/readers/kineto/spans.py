"""Columns of a trace's spans (`ph` X), and tables of the arguments that some spans have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchgauge.readers.columns import Parts
from torchgauge.readers.kineto.arguments import Arguments, Uncategorised
from torchgauge.readers.kineto.categories import OTHER_SPAN, TABLES, Heads
from torchgauge.readers.kineto.decoding import Event
from torchgauge.readers.kineto.times import Times, nanoseconds
from torchgauge.readers.tables import Table
from torchgauge.records.trace.events import (
    ABSENT,
    Codes,
    Collectives,
    DeviceWork,
    Launches,
    Operators,
    PythonCalls,
    RecordedWaits,
    Rows,
)

_FASTEST = 1e15  # GB/s: no memory is as fast


class Spans:
    """Columns and tables of spans."""

    def __init__(self, heads: Heads) -> None:
        self._head_index = heads
        self._count = 0
        self.start = Times()
        self._duration = Parts(np.int64)
        self._heads = Parts(np.int32)
        self._tables = {
            "operators": Table(
                *("external_id", "index", "older_index", "sequence", "forward_thread"),
                *("dims", "strides", "types", "inputs", "modules", "layer_class"),
            ),
            "launches": Table("correlation", "external_id", "kernel"),
            "device_work": Table(
                *(
                    "device",
                    "stream",
                    "queue",
                    "correlation",
                    "external_id",
                    "grid",
                    "block",
                    "registers",
                ),
                *("shared_memory", "blocks_per_sm", "warps_per_sm", "occupancy", "graph_node"),
                *("copied", "bandwidth", "kind"),
            ),
            "recorded_waits": Table(
                *("correlation", "device", "stream", "awaited_stream", "awaited_record")
            ),
            "python": Table("id", "parent", "module"),
            "unsorted": Table(
                *("correlation_id", "kernel_details", "memcpy_details", "memset_details"),
                *("cuda_graph_node_id", "step_num"),
            ),
        }
        self._collectives = Table(
            *("collective", "dtype", "elements_in", "elements_out", "group"),
            *("group_description", "group_size", "ranks", "split_in"),
        )

    def add(self, events: list[Event], heads: Codes, kinds: NDArray[np.int8]) -> None:
        """Append the spans of one chunk."""
        self.start.add([e.ts for e in events])
        # Negative ones stand in traces of 2022 and before, and mean nothing.
        self._duration.append(np.maximum(nanoseconds([e.dur for e in events]), 0))
        self._heads.append(heads)
        self._add_arguments(kinds - (OTHER_SPAN + 1), events)
        self._count += len(events)

    def _add_arguments(self, tables: NDArray[np.int8], events: list[Event]) -> None:
        arguments = [e.args for e in events]
        for number, name in enumerate(TABLES):
            indices = [i for i in np.flatnonzero(tables == number).tolist() if arguments[i]]
            if name == "unsorted":
                indices = [i for i in indices if isinstance(arguments[i], Uncategorised)]
            if not indices:
                continue
            table_arguments: list[Any] = [arguments[i] for i in indices]
            rows = np.array(indices, dtype=np.intp) + self._count
            self._tables[name].append(table_arguments, rows)
            if name in ("operators", "device_work"):
                self._add_collectives(table_arguments, rows)

    def _add_collectives(self, arguments: Sequence[Arguments], rows: Rows) -> None:
        indices = [i for i, argument in enumerate(arguments) if argument.collective is not None]
        if indices:
            self._collectives.append([arguments[i] for i in indices], rows[indices])

    def finish(self, origin: int) -> dict[str, Any]:
        """Return the fields of Events that are about spans, and the table `unsorted`.

        Spans in it have no category. Raises ValueError for times beyond all reason.
        """
        heads, duration = self._heads.finish(), self._duration.finish()
        tables = {name: table.finish() for name, table in self._tables.items()}
        return {
            "start": self.start.finish_from(origin, float(duration.sum(dtype=np.float64))),
            "duration": duration,
            "name": self._head_index.column("name", heads),
            "category": self._head_index.column("cat", heads),
            "thread": self._head_index.threads(heads),
            "operators": _operators(tables["operators"]),
            "launches": Launches(**tables["launches"]),
            "device_work": _device_work(tables["device_work"]),
            "collectives": _collectives(self._collectives.finish()),
            "recorded_waits": RecordedWaits(**tables["recorded_waits"]),
            "python": PythonCalls(**tables["python"]),
            "unsorted": tables["unsorted"],
        }


def _operators(columns: dict[str, Any]) -> Operators:
    older = columns.pop("older_index")
    columns["index"] = np.where(columns["index"] == ABSENT, older, columns["index"])
    return Operators(**columns)


def _device_work(columns: dict[str, Any]) -> DeviceWork:
    columns["size"], queue = columns.pop("copied"), columns.pop("queue")
    columns["stream"] = np.where(columns["stream"] == ABSENT, queue, columns["stream"])
    rate = columns["bandwidth"]  # in GB/s
    columns["bandwidth"] = np.where(np.abs(rate) < _FASTEST, rate, np.nan) * 1e9
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
