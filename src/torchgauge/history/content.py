"""Map a record to the columns of a store: the whole of it packed, its figures in columns."""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec

from torchgauge.errors import RecordError
from torchgauge.reading import RECORD, inflated
from torchgauge.records import codec
from torchgauge.records.figures import figures
from torchgauge.records.generation.generation import Generation
from torchgauge.records.profile import Profile
from torchgauge.records.record import How
from torchgauge.records.run import Entry, Facts, Run
from torchgauge.records.serving.serving import Serving
from torchgauge.records.timeline import tables

# What is asked of layers over time; the record holds the rest.
LAYER_METRICS: dict[str, tuple[str, How]] = {
    "host_time": ("s", "measured"),
    "device_time": ("s", "measured"),
    "flops": ("", "counted"),
    "bytes": ("B", "counted"),
    "peak": ("B", "measured"),
}


def entry(profile: Profile, facts: Facts) -> Entry:
    """Return the run of a record, with an identity of its own made now."""
    target, environment = profile.target, profile.environment
    machine, software = environment.machine, environment.software
    run = Run(
        **msgspec.structs.asdict(facts),
        uuid=str(uuid4()),
        digest=digest(profile),
        created=moment(environment.created),
        recorded=datetime.now(UTC).isoformat(timespec="microseconds"),
        machine=machine.fingerprint,
        cpu=machine.cpu,
        gpu=", ".join(gpu.name for gpu in machine.gpus),
        torch=software.torch,
        target=target.spec,
        model=target.name,
        device=target.device,
        precision=target.precision,
        workload=_workload(profile),
        schema=profile.schema,
    )
    return Entry(run=run, profile=profile)


def digest(profile: Profile) -> str:
    """Return the hash of a record's content, by which a store tells that it has it already."""
    return hashlib.sha256(msgspec.json.encode(profile)).hexdigest()


def moment(text: str) -> str:
    """Return an ISO 8601 time in UTC and of one width, so that texts sort as times do.

    Raises RecordError `record-invalid`.
    """
    try:
        timestamp = datetime.fromisoformat(text)
        timestamp = (timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)).astimezone(
            UTC
        )
    except (ValueError, OverflowError) as error:
        raise RecordError(
            f"'{text}' is not a time.",
            id="record-invalid",
            cause="A record says in ISO 8601 when it was made.",
            remedy="Repair environment.created, or repeat the run.",
        ) from error
    return timestamp.isoformat(timespec="microseconds")


def packed(profile: Profile) -> bytes:
    """Return the whole record, compressed."""
    return zlib.compress(msgspec.json.encode(profile), 6)


def unpacked(data: object, origin: str) -> Profile:
    """Return the record again.

    Raises RecordError `store-damaged`, InputError `file-too-large` for one that unpacks beyond all
    reason, and what the codec raises.
    """
    try:
        if not isinstance(data, bytes):  # SQLite keeps any type in any column
            raise zlib.error("it is not a compressed record")
        record = codec.decode(inflated(data, RECORD, f"The record of {origin}"), origin)
    except zlib.error as error:
        raise RecordError(
            f"The record of {origin} cannot be unpacked.",
            id="store-damaged",
            cause=str(error),
            remedy="Restore the store from a copy, or remove this run.",
        ) from error
    if not isinstance(record, Profile):
        raise not_a_profile(origin, record)
    return record


def not_a_profile(origin: str, record: object) -> RecordError:
    """Return the error for a record of another kind."""
    return RecordError(
        f"{origin} holds a {type(record).__name__.lower()}"
        f"{' without a measured shape' * isinstance(record, Generation)}"
        f"{' without a level of load' * isinstance(record, Serving)}.",
        id="history-kind",
        cause="The history keeps profiles, the measured shapes of generations and levels of load.",
        remedy="Add what `torchgauge profile TARGET --output-dir DIR` wrote as profile.json.",
    )


def metric_rows(profile: Profile) -> list[dict[str, Any]]:
    """Return the headline figures that are known, one row each, in SI units."""
    return [
        {
            "name": figure.name,
            "unit": figure.unit,
            "how": figure.how,
            "value": float(figure.value),
            "low": None if figure.interval is None else figure.interval.low,
            "high": None if figure.interval is None else figure.interval.high,
            "scope": None if figure.interval is None else figure.interval.scope,
        }
        for figure in figures(profile)
        if figure.value is not None
    ]


def yardstick_rows(profile: Profile) -> list[dict[str, Any]]:
    """Return the times of the reference work between the calls, one row to each kind, in s."""
    latency = profile.latency
    if latency is None or latency.yardstick is None:
        return []
    times = latency.yardstick.times
    return [{"kind": kind, "seconds": seconds} for kind, seconds in times.items()]


def layer_figures(profile: Profile) -> list[dict[str, Any]]:
    """Return the layers' figures that are known, one row each, in SI units.

    A layer that occurs at several places of the tree has the sum of its times and work, and the
    highest of its peaks.
    """
    if profile.tree is None:
        return []
    totals: dict[tuple[str, str], float] = {}
    for row in tables.layers(profile.tree).rows():
        for metric in LAYER_METRICS:
            if (value := row[metric]) is not None:
                key, previous = (row["path"], metric), totals.get((row["path"], metric), 0.0)
                totals[key] = max(previous, value) if metric == "peak" else previous + float(value)
    return [{"path": path, "metric": metric, "value": v} for (path, metric), v in totals.items()]


def _workload(profile: Profile) -> str:
    """Return what two runs have in common whose times may stand in one series."""
    target, settings = profile.target, profile.environment.settings
    facts = msgspec.structs.asdict(target)
    del facts["weights"]
    if not target.runtime:  # torch: as runs were recorded before there was another
        del facts["runtime"]
    facts["inputs"] = [msgspec.structs.astuple(input_spec) for input_spec in target.inputs]
    common = (facts, settings.threads, settings.interop_threads, settings.deterministic)
    tf32 = (settings.fp32_matmul, settings.fp32_convolution)
    return hashlib.sha256(repr((common, tf32)).encode()).hexdigest()[:16]
