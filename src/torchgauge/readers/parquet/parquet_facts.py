"""Facts of a whole trace, stored as JSON in the metadata of its Parquet file."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import Events, ThreadId, TraceMetadata

VERSION = 4  # of the columns and of these facts
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
