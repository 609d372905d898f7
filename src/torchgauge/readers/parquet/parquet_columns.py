"""The columns of a trace as one wide table: which of them hold which fields of the events.

A row is a span, an allocation or free, or an end of an arrow, in this order. `kind` says which
table of the events has its arguments. Tables share a column where a field means the same in both.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import ABSENT, Coded, Events, Rows, ThreadId, TraceMetadata

SPANS = "spans"
SPAN = "span"  # the kind of one without arguments
# Tables by what a row of theirs is called; a row has one of them at most.
KINDS = {
    "operator": "operators",
    "launch": "launches",
    "device": "device_work",
    "wait": "recorded_waits",
    "python": "python",
    "memory": "memory",
    "flow": "flows",
}
OPERATOR, LAUNCH, DEVICE, WAIT, PYTHON, MEMORY, FLOW = KINDS.values()
MESSAGE = "collectives"  # beside an operator's or a kernel's
INTEGER, FRACTION, TRUTH, TEXT, LIST = "integer", "fraction", "truth", "text", "list"


class Column(NamedTuple):
    """A column and the fields of tables that it holds; `axis` is that of a triple."""

    name: str
    form: str
    fields: tuple[tuple[str, str], ...]
    axis: int | None = None


def _columns() -> Iterator[Column]:
    yield Column("name", TEXT, ((SPANS, "name"),))
    yield Column("category", TEXT, ((SPANS, "category"),))
    yield Column("start", INTEGER, ((SPANS, "start"), (MEMORY, "time"), (FLOW, "time")))
    yield Column("duration", INTEGER, ((SPANS, "duration"),))
    yield Column("track", INTEGER, tuple((table, "thread") for table in (SPANS, MEMORY, FLOW)))
    yield Column("device", INTEGER, ((DEVICE, "device"), (WAIT, "device"), (MEMORY, "device")))
    yield Column("stream", INTEGER, ((DEVICE, "stream"), (WAIT, "stream")))
    launched = tuple((table, "correlation") for table in (LAUNCH, DEVICE, WAIT))
    yield Column("correlation", INTEGER, launched)
    for field in ("awaited_stream", "awaited_record"):
        yield Column(field, INTEGER, ((WAIT, field),))
    yield Column("bytes", INTEGER, ((DEVICE, "size"), (MEMORY, "size")))
    yield Column("bandwidth", FRACTION, ((DEVICE, "bandwidth"),))
    yield Column("copy_kind", TEXT, ((DEVICE, "kind"),))
    yield from _operator_columns()
    yield from _kernel_columns()
    yield from _collective_columns()
    for field in ("id", "parent", "module"):
        yield Column(f"python_{field}", INTEGER, ((PYTHON, field),))
    for field in ("address", "allocated", "reserved", "device_type"):
        yield Column(field, INTEGER, ((MEMORY, field),))
    yield Column("flow", TEXT, ((FLOW, "category"),))
    yield Column("flow_id", INTEGER, ((FLOW, "id"),))
    yield Column("flow_begins", TRUTH, ((FLOW, "begins"),))


def _operator_columns() -> Iterator[Column]:
    yield Column("shapes", LIST, ((OPERATOR, "dims"),))
    for field in ("strides", "types", "inputs"):
        yield Column(field, LIST, ((OPERATOR, field),))
    for field in ("modules", "layer_class"):
        yield Column(field, TEXT, ((OPERATOR, field),))
    tables = (OPERATOR, LAUNCH, DEVICE)
    yield Column("external_id", INTEGER, tuple((table, "external_id") for table in tables))
    yield Column("event_index", INTEGER, ((OPERATOR, "index"), (MEMORY, "index")))
    for field in ("sequence", "forward_thread"):
        yield Column(field, INTEGER, ((OPERATOR, field),))


def _kernel_columns() -> Iterator[Column]:
    yield Column("kernel", TEXT, ((LAUNCH, "kernel"),))
    for field in ("grid", "block"):
        for axis, letter in enumerate("xyz"):
            yield Column(f"{field}_{letter}", INTEGER, ((DEVICE, field),), axis)
    for field in ("registers", "shared_memory", "graph_node"):
        yield Column(field, INTEGER, ((DEVICE, field),))
    for field in ("blocks_per_sm", "warps_per_sm", "occupancy"):
        yield Column(field, FRACTION, ((DEVICE, field),))


def _collective_columns() -> Iterator[Column]:
    yield Column("collective", TEXT, ((MESSAGE, "name"),))
    yield Column("group_ranks", TEXT, ((MESSAGE, "ranks"),))
    for field in ("dtype", "group", "group_description", "split_in"):
        yield Column(field, TEXT, ((MESSAGE, field),))
    for field in ("elements_in", "elements_out", "group_size"):
        yield Column(field, INTEGER, ((MESSAGE, field),))


COLUMNS = tuple(_columns())


def rows_of(events: Events) -> dict[str, Rows]:
    """Return the rows of each table, in ascending order."""
    first = len(events)
    arrows = first + len(events.memory.time)
    return {
        SPANS: np.arange(first),
        **{
            name: getattr(events, name).row
            for name in (OPERATOR, LAUNCH, DEVICE, WAIT, PYTHON, MESSAGE)
        },
        MEMORY: np.arange(first, arrows),
        FLOW: np.arange(arrows, arrows + len(events.flows.time)),
    }


def field_of(events: Events, table: str, field: str) -> Any:
    """Return a field of a table: an array or a coded column."""
    return getattr(events if table == SPANS else getattr(events, table), field)


def absent(form: str) -> float:
    """Return what stands in a numeric column where there is nothing."""
    return np.nan if form == FRACTION else ABSENT


def texts(values: Coded[Any], form: str) -> tuple[str, ...]:
    """Return the values of a coded column as text: lists as JSON."""
    if form != LIST:
        return values.values
    return tuple(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values.values
    )


def values(texts: list[str], form: str) -> tuple[Any, ...]:
    """Return what `texts` was made of; raises ValueError."""
    if form != LIST:
        return tuple(texts)
    lists = tuple(_tupled(json.loads(text)) for text in texts)
    if not all(isinstance(value, tuple) for value in lists):
        raise ValueError("a list was expected")
    return lists


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


VERSION = 5  # of the columns and of these facts
# Fields that facts share with the metadata, and which of them are mappings.
_FIELDS = tuple(field.name for field in dataclasses.fields(TraceMetadata) if field.name != "origin")
_PAIRS = ("process_names", "process_labels", "thread_names")
_KEY, _CHECK = b"torchgauge", b"torchgauge.crc32"


class Origin(msgspec.Struct, frozen=True):
    """Source file of the events: size, time of change (ns), and which Python functions are kept."""

    size: int
    changed: int
    python: str


class Facts(msgspec.Struct, frozen=True):
    """Facts of one rank. `counts` are the rows: spans, allocations, ends of arrows.

    Mappings are lists of pairs, for keys may be numbers and pairs.
    """

    version: int
    origin: Origin | None
    counts: tuple[int, int, int]
    threads: list[ThreadId]
    warnings: tuple[MeasurementWarning, ...]
    begin: int
    base_time: int | None
    schema_version: int | None
    display_time_unit: str | None
    trace_name: str | None
    devices: tuple[dict[str, Any], ...]
    distributed: dict[str, Any] | None
    process_names: list[tuple[int | str, str]]
    process_labels: list[tuple[int | str, str]]
    thread_names: list[tuple[ThreadId, str]]
    recorder: str | None
    versions: dict[str, str]
    accelerator: str | None

    def metadata(self) -> TraceMetadata:
        """Return the trace's metadata."""
        values = {name: getattr(self, name) for name in _FIELDS}
        pairs = {name: dict(values[name]) for name in _PAIRS}
        return TraceMetadata(origin=self.begin, **values | pairs)


def facts_of(events: Events, counts: tuple[int, int, int], origin: Origin | None = None) -> Facts:
    """Return the facts about these events; `counts` are the rows that are written of each table."""
    fields = {name: getattr(events.metadata, name) for name in _FIELDS}
    pairs = {name: list(fields[name].items()) for name in _PAIRS}
    return Facts(
        version=VERSION,
        origin=origin,
        counts=counts,
        threads=list(events.thread.values),
        warnings=events.warnings,
        begin=events.metadata.origin,
        **fields | pairs,
    )


def encoded(facts: Sequence[Facts]) -> dict[bytes, bytes]:
    """Return the metadata of a file with these ranks."""
    # By the json module, which writes integers of any size.
    text = json.dumps(msgspec.to_builtins(facts), ensure_ascii=False).encode()
    return {_KEY: text, _CHECK: b"%08x" % zlib.crc32(text)}


def decoded(metadata: Mapping[bytes, bytes]) -> list[Facts]:
    """Return the ranks of a file with this metadata; raises ValueError, LookupError."""
    text = metadata[_KEY]
    if int(metadata[_CHECK], 16) != zlib.crc32(text):
        raise ValueError("the metadata is damaged")
    return msgspec.json.decode(text, type=list[Facts])
