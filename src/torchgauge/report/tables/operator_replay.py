"""A recorded call of an operator beside what it takes on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.records.trace.replay import RecordedCall, Replay
from torchgauge.report.content.document import (
    Column,
    Document,
    Facts,
    Row,
    Table,
    Value,
    Warnings,
)

COLUMNS = (
    Column("host", unit="time", empty="–"),
    Column("device", unit="time", empty="–"),
    Column("interval", empty="–"),
)


def document(replay: Replay) -> Document:
    """Return the call's arguments, then its recorded and its measured time."""
    call, latency = replay.call, replay.latency
    measured: dict[str, Value] = {"host": latency.median}
    if latency.device_time is not None:
        measured["device"] = latency.device_time
    if latency.interval is not None:
        measured["interval"] = units.times(latency.interval.low, latency.interval.high, 3)
    recorded: dict[str, Value] = {"host": call.host}
    if call.device is not None:
        recorded["device"] = call.device
    rows = [
        Row(f"recorded on {call.device_name or 'a CPU'}", recorded),
        Row(f"measured on {replay.on}", measured),
    ]
    notes = (
        "Recorded: one call under a profiler, which slows the host. Measured: the median here.",
        *replay.notes,
    )
    table = Table(columns=COLUMNS, rows=rows, recorded=True, notes=notes, tight=True)
    return Document(
        f"{call.name}#{call.number}",
        headline=f"of {call.calls:,} calls",
        facts=Facts([("operator", replay.overload), *_arguments(call)], recorded=True),
        blocks=[table, *([Warnings(latency.warnings)] if latency.warnings else [])],
        names=(call.name,),
    )


def _arguments(call: RecordedCall) -> Iterator[tuple[str, str]]:
    for index, (sizes, kind) in enumerate(zip(call.dims, call.types, strict=False)):
        value = "" if call.inputs is None else call.inputs[index]
        steps = "" if not call.strides else f", strides {_numbers(call.strides[index])}"
        if kind and kind not in ("Scalar", "ScalarList", "TensorList"):
            yield f"argument {index + 1}", f"{kind} {_numbers(sizes)}{steps}"
        elif value:
            yield f"argument {index + 1}", value


def _numbers(sizes: object) -> str:
    return "×".join(map(str, sizes)) if isinstance(sizes, tuple | list) and sizes else "single"
