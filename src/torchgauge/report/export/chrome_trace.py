"""A recording as a Chrome trace, which Perfetto opens: torch's own events under the layers' names.

Each span has its layer in its arguments; a layer's call has its qualified name. Steps are named as
torch's own profiler names them. Only columns and some thousand events are held in memory at once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from torchgauge.analyze.timeline.attribution import RECOMPUTE_END
from torchgauge.analyze.timeline.launches import NamedSpans
from torchgauge.files import packed, write_atomically
from torchgauge.readers.tables import cut_ends, outer_first
from torchgauge.records.record import encodable
from torchgauge.records.trace.events import ABSENT, Coded, Events, Rows, ThreadId

KEYS = {
    "operators": {
        "external_id": "External id",
        "index": "Ev Idx",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "dims": "Input Dims",
        "strides": "Input Strides",
        "types": "Input type",
        "inputs": "Concrete Inputs",
        "modules": "Module Hierarchy",
        "layer_class": "Class",
    },
    "launches": {"external_id": "External id", "correlation": "correlation", "kernel": "kernel"},
    "device_work": {
        "device": "device",
        "stream": "stream",
        "correlation": "correlation",
        "external_id": "External id",
        "grid": "grid",
        "block": "block",
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "warps_per_sm": "warps per SM",
        "occupancy": "est. achieved occupancy %",
        "graph_node": "graph node id",
        "size": "bytes",
        "bandwidth": "memory bandwidth (GB/s)",
        "kind": "kind",
    },
    "collectives": {
        "name": "Collective name",
        "dtype": "dtype",
        "elements_in": "In msg nelems",
        "elements_out": "Out msg nelems",
        "group": "Process Group Name",
        "group_description": "Process Group Description",
        "group_size": "Group size",
        "ranks": "Process Group Ranks",
        "split_in": "In split size",
    },
    "python": {"id": "Python id", "parent": "Python parent id", "module": "Python module id"},
}
# The file's unit in that of the column.
_UNITS = {"bandwidth": 1e9, "occupancy": 0.01}


class Arguments:
    """The arguments from one table of the events; absent values are left out."""

    def __init__(self, events: Events, kind: str) -> None:
        table = getattr(events, kind)
        self._index_of_row = np.full(len(events), ABSENT, np.intp)
        self._index_of_row[table.row] = np.arange(len(table.row))
        self._columns: list[tuple[str, np.ndarray, list[Any] | None]] = []
        for name, key in KEYS[kind].items():
            column = getattr(table, name)
            if isinstance(column, Coded):
                # Each distinct list of shapes is encoded once.
                values = [*(msgspec.Raw(msgspec.json.encode(value)) for value in column.values)]
                self._columns.append((key, column.codes, values))
            else:
                self._columns.append(
                    (key, column / _UNITS[name] if name in _UNITS else column, None)
                )

    def fill(self, rows: Rows, args: list[dict[str, Any]]) -> None:
        """Fill in the known arguments of these spans."""
        indices = self._index_of_row[rows]
        present = np.flatnonzero(indices != ABSENT)
        for key, column, values in self._columns:
            cells = column[indices[present]]
            is_known = cells != ABSENT
            if cells.ndim > 1:
                is_known = is_known.all(axis=1)
            elif cells.dtype.kind == "f":
                is_known = ~np.isnan(cells)
            known_cells = cells[is_known].tolist()
            for index, cell in zip(present[is_known].tolist(), known_cells, strict=True):
                args[index][key] = cell if values is None else values[cell]


AT_ONCE = 4096  # events
_STEP = re.compile(r"tg@(\d+)")
_DEVICES = {0: "CPU", 1: "CUDA"}

_encode = msgspec.json.Encoder().encode


def write(spans: NamedSpans, path: Path) -> Path:
    """Write the trace whole or not at all, packed where the name ends in .gz; return the path.

    Raises InputError `output-unwritable`.
    """
    text = parts(spans)
    return write_atomically(path, packed(text) if path.suffix == ".gz" else text)


def parts(spans: NamedSpans) -> Iterator[bytes]:
    """Yield the trace's JSON, piece by piece."""
    yield _encode(_header(spans.events))[:-1] + b',"traceEvents":[\n'
    batches = (_names(spans.events), _spans(spans), _arrows(spans.events), _memory(spans.events))
    first = True
    for batch in itertools.chain(*batches):
        if batch:
            yield (b"" if first else b",\n") + _encode(batch)[1:-1].replace(
                b'},{"ph"', b'},\n{"ph"'
            )
            first = False
    yield b"\n]}\n"


def _header(events: Events) -> dict[str, Any]:
    """Return the file's metadata; its times count from the trace's earliest."""
    metadata = events.metadata
    header: dict[str, Any] = {
        "schemaVersion": metadata.schema_version or 1,
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": (metadata.base_time or 0) + metadata.origin,
        "deviceProperties": metadata.devices,
    }
    if metadata.distributed is not None:
        header["distributedInfo"] = metadata.distributed
    return header


def _names(events: Events) -> Iterator[list[dict[str, Any]]]:
    metadata = events.metadata
    named = [
        *(("process_name", pid, 0, "name", text) for pid, text in metadata.process_names.items()),
        *(
            ("process_labels", pid, 0, "labels", text)
            for pid, text in metadata.process_labels.items()
        ),
        *(("thread_name", *thread, "name", text) for thread, text in metadata.thread_names.items()),
    ]
    yield [
        {
            "ph": "M",
            "name": event_name,
            "pid": pid,
            "tid": tid,
            "ts": 0,
            "args": {key: encodable(text)},
        }
        for event_name, pid, tid, key, text in named
    ]


def _spans(spans: NamedSpans) -> Iterator[list[dict[str, Any]]]:
    events = spans.events
    ends = cut_ends(events.start, events.duration, events.thread.codes)
    argument_tables = [Arguments(events, kind) for kind in KEYS]
    labels = _Labels(spans)
    for rows in _chunks(outer_first(events.start, events.duration, events.thread.codes)):
        args: list[dict[str, Any]] = [{} for _ in rows]
        for table in argument_tables:
            table.fill(rows, args)
        columns = zip(
            labels.categories(rows),
            labels.names(rows, args),
            _threads(events, events.thread.codes[rows]),
            (events.start[rows] / 1000).tolist(),
            ((ends - events.start)[rows] / 1000).tolist(),
            args,
            strict=True,
        )
        yield [
            {
                "ph": "X",
                **({} if category is None else {"cat": category}),
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": start,
                "dur": duration,
                "args": span_arguments,
            }
            for category, name, (pid, tid), start, duration, span_arguments in columns
        ]


class _Labels:
    """Names and categories of spans: the layers' for their calls, the recorded ones for others."""

    def __init__(self, spans: NamedSpans) -> None:
        self._spans = spans
        self._names = [*(encodable(_readable(name)) for name in spans.events.name.values), ""]
        self._layers = [
            (encodable(layer.name), encodable(layer.kind)) for layer in spans.layer.values
        ]

    def names(self, rows: Rows, args: list[dict[str, Any]]) -> Iterator[str]:
        """Yield the spans' names, and add their layers to their arguments."""
        codes = self._spans.events.name.codes[rows].tolist()
        layers = self._spans.layer.codes[rows].tolist()
        calls = self._spans.is_call[rows].tolist()
        for span_arguments, code, layer, call in zip(args, codes, layers, calls, strict=True):
            name, kind = self._layers[layer] if layer != ABSENT else ("", "")
            if layer != ABSENT:
                span_arguments["Layer"] = name
            if call:
                span_arguments["Class"] = kind
            yield name if call else self._names[code]

    def categories(self, rows: Rows) -> Iterator[str | None]:
        """Yield the spans' categories; a layer's call is an annotation."""
        category = self._spans.events.category
        values = [*category.values, None]
        calls = self._spans.is_call[rows].tolist()
        for code, call in zip(category.codes[rows].tolist(), calls, strict=True):
            yield "user_annotation" if call else values[code]


def _arrows(events: Events) -> Iterator[list[dict[str, Any]]]:
    flows = events.flows
    for rows in _chunks(np.arange(len(flows.time))):
        columns = zip(
            flows.begins[rows].tolist(),
            rows.tolist(),
            flows.id[rows].tolist(),
            _threads(events, flows.thread[rows]),
            (flows.time[rows] / 1000).tolist(),
            strict=True,
        )
        yield [
            {
                "ph": "s" if begins else "f",
                "id": number,
                "pid": pid,
                "tid": tid,
                "ts": time,
                "cat": flows.category[row],
                "name": flows.category[row],
                **({} if begins else {"bp": "e"}),
            }
            for begins, row, number, (pid, tid), time in columns
        ]


def _memory(events: Events) -> Iterator[list[dict[str, Any]]]:
    """Yield the allocator's totals as a counter, one for each device."""
    memory = events.memory
    for rows in _chunks(np.flatnonzero(memory.allocated != ABSENT)):
        columns = zip(
            _threads(events, memory.thread[rows]),
            (memory.time[rows] / 1000).tolist(),
            memory.device_type[rows].tolist(),
            memory.device[rows].tolist(),
            memory.allocated[rows].tolist(),
            strict=True,
        )
        yield [
            {
                "ph": "C",
                "name": f"allocated {_device(kind, number)}",
                "pid": pid,
                "tid": tid,
                "ts": time,
                "args": {"bytes": allocated},
            }
            for (pid, tid), time, kind, number, allocated in columns
        ]


def _device(kind: int, number: int) -> str:
    return _DEVICES.get(kind, f"device type {kind}") + (f" {number}" if number >= 0 else "")


def _chunks(rows: Rows) -> Iterator[Rows]:
    return (rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE))


def _threads(events: Events, codes: np.ndarray) -> Iterator[ThreadId]:
    return map(events.thread.values.__getitem__, codes.tolist())


def _readable(name: str) -> str:
    """Return the name under which other tools know a range of torchgauge's own."""
    if step := _STEP.fullmatch(name):
        return f"ProfilerStep#{step[1]}"
    return "checkpoint: early stop" if name == RECOMPUTE_END else name
