"""What is true of a whole trace, as JSON in the metadata of the Parquet file of its events."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from torchgauge.model.events import Events, ThreadId, TraceMetadata
from torchgauge.model.record import MeasurementWarning

VERSION = 3  # of the columns and of these facts
_KEY, _CHECK = b"torchgauge", b"torchgauge.crc32"


class Origin(msgspec.Struct, frozen=True):
    """What the events were read from, and how: size and time of change (ns) of the file."""

    size: int
    changed: int
    python: str


class Facts(msgspec.Struct, frozen=True):
    """Of one rank. `counts` are the rows: spans, allocations, ends of arrows.

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
        return TraceMetadata(
            origin=self.begin,
            base_time=self.base_time,
            schema_version=self.schema_version,
            display_time_unit=self.display_time_unit,
            trace_name=self.trace_name,
            devices=self.devices,
            distributed=self.distributed,
            process_names=dict(self.process_names),
            process_labels=dict(self.process_labels),
            thread_names=dict(self.thread_names),
            recorder=self.recorder,
            versions=self.versions,
        )


def facts_of(events: Events, counts: tuple[int, int, int], origin: Origin | None = None) -> Facts:
    """Return what is true of these events, of which so many are written."""
    known = events.metadata
    return Facts(
        version=VERSION,
        origin=origin,
        counts=counts,
        threads=list(events.thread.values),
        warnings=events.warnings,
        begin=known.origin,
        base_time=known.base_time,
        schema_version=known.schema_version,
        display_time_unit=known.display_time_unit,
        trace_name=known.trace_name,
        devices=known.devices,
        distributed=known.distributed,
        process_names=list(known.process_names.items()),
        process_labels=list(known.process_labels.items()),
        thread_names=list(known.thread_names.items()),
        recorder=known.recorder,
        versions=known.versions,
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
