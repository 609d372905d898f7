"""Records to JSON and back, by schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec

from torchgauge.errors import RecordError
from torchgauge.files import write_atomically
from torchgauge.reading import RECORD, read_bytes
from torchgauge.records.advice import Advice
from torchgauge.records.comparison import Comparison
from torchgauge.records.consistency import faults
from torchgauge.records.doctor import Diagnosis
from torchgauge.records.generation.generation import Generation
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.profile import SCHEMA, Profile
from torchgauge.records.record import Record
from torchgauge.records.serving.capacity_plan import CapacityPlan
from torchgauge.records.serving.serving import Serving
from torchgauge.records.snapshot import Growth, Snapshot
from torchgauge.records.sweep import Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.timeline.tree import Timeline
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.records.trace.trace_diff import TraceDiff, TraceSide
from torchgauge.records.trend import Trend
from torchgauge.records.verdict import Verdict
from torchgauge.records.work.size import Count

Saved = (
    Profile
    | CapacityPlan
    | Diagnosis
    | Count
    | Loop
    | Ranks
    | Parallel
    | Comparison
    | Snapshot
    | Generation
    | Growth
    | Serving
    | Sweep
    | Trace
    | TraceDiff
    | TrainingRun
    | Trend
    | Verdict
    | Advice
)
KINDS: dict[str, type[Saved]] = {
    str(field.default): kind
    for kind in get_args(Saved)
    for field in msgspec.structs.fields(kind)
    if field.name == "schema"
}

_SIDES = ("baseline", "current")
SAVED_TIMELINE = 64_000  # bytes of a trace's timeline; a larger one is left out of the saved record


class _Peek(msgspec.Struct):
    schema: str = ""


def encode(record: Record) -> bytes:
    """Return the record as JSON text, without the timelines of traces that are large."""
    if isinstance(record, Trace):
        record = msgspec.structs.replace(record, ranks=tuple(map(_without_large, record.ranks)))
    if isinstance(record, TraceDiff):
        sides = {name: _side_without_large(getattr(record, name)) for name in _SIDES}
        record = msgspec.structs.replace(record, **sides)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def _without_large(rank: RankTrace) -> RankTrace:
    if not _is_large(rank.tree.timeline):
        return rank
    return msgspec.structs.replace(rank, tree=msgspec.structs.replace(rank.tree, timeline=None))


def _side_without_large(side: TraceSide) -> TraceSide:
    return msgspec.structs.replace(side, timeline=None) if _is_large(side.timeline) else side


def _is_large(timeline: Timeline | None) -> bool:
    return timeline is not None and len(timeline.columns) > SAVED_TIMELINE


def decode(data: bytes, origin: str = "the data") -> Saved:
    """Return the record that `data` holds.

    Raises RecordError: `record-unreadable` (no JSON, truncated), `record-foreign` (no record of
    torchgauge), `record-newer` (a later schema than this version knows), `record-invalid` (a field
    of the wrong type, a number that is none, or fields that do not fit together).
    """
    try:
        schema = msgspec.json.decode(data, type=_Peek).schema
    except msgspec.ValidationError as error:
        raise _foreign(origin) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{origin} is not readable JSON.",
            id="record-unreadable",
            cause=str(error),
            remedy="The file is damaged or was cut off: copy it again, or repeat the run."
            if data.lstrip().startswith(b"{")
            else "Give a file that torchgauge wrote (--output-dir, profile.save).",
        ) from error
    kind = _kind_of(schema, origin)
    try:
        record = msgspec.json.decode(data, type=kind)
        for fault in faults(record):
            raise _invalid(origin, schema, f"{fault.message} - at `$.{fault.path}`")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(origin, schema, " ".join(str(error).splitlines())) from error
    return record


def _invalid(origin: str, schema: str, cause: str) -> RecordError:
    return RecordError(
        f"{origin} has a field that does not fit its schema {schema}.",
        id="record-invalid",
        cause=cause,
        remedy="It was edited by hand or damaged: repair that field, or repeat the run.",
    )


def _kind_of(schema: str, origin: str) -> type[Saved]:
    """Return the type of the records of a schema."""
    if schema in KINDS:
        return KINDS[schema]
    kind, _, version = schema.partition("/")
    latest = {name.partition("/")[0]: name for name in KINDS}.get(kind)
    if latest is None or not version.isdecimal():
        raise _foreign(origin)
    raise RecordError(
        f"{origin} has schema {schema}; this torchgauge reads {latest}.",
        id="record-newer",
        cause="It was written by a newer torchgauge.",
        remedy="pip install --upgrade torchgauge",
    )


def _foreign(origin: str) -> RecordError:
    return RecordError(
        f"{origin} is not a torchgauge record.",
        id="record-foreign",
        cause="It is JSON without a torchgauge 'schema' field.",
        remedy="Give a file that torchgauge wrote (--output-dir, profile.save).",
    )


def save(record: Record, path: Path) -> Path:
    """Write the record to `path`, whole or not at all, and return the path."""
    return write_atomically(path, encode(record))


def load(path: Path) -> Saved:
    """Return the record saved at `path`.

    Raises InputError `file-missing`, `file-not-regular`, `file-too-large` and what `decode` raises.
    """
    return decode(read_bytes(path, RECORD), f"'{path}'")


def json_schema(schema: str = SCHEMA) -> dict[str, Any]:
    """Return the JSON Schema of the records of one kind, such as "torchgauge.profile/1"."""
    document = msgspec.json.schema(KINDS[schema])
    record = document["$defs"][KINDS[schema].__name__]
    record["properties"]["schema"] = {"const": schema}
    record["required"] = ["schema", *record["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": schema, **document}
