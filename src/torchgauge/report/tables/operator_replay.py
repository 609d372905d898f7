"""An operator that was run again, with its operands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torchgauge import units
from torchgauge.records.trace.replay import RecordedCall, Replay
from torchgauge.report.content.document import Column, Document, Facts, Row, Table, Value, Warnings

NO_SHAPE = "–"


def labels(names: Sequence[str], shapes: Sequence[str]) -> list[str]:
    """Return each operator's name with short shapes, or torch's where short ones are equal."""
    short_labels = [
        f"{name}  {short(operands)}" for name, operands in zip(names, shapes, strict=True)
    ]
    times = Counter(short_labels)
    return [
        label if times[label] == 1 else f"{name}  {operands}"
        for label, name, operands in zip(short_labels, names, shapes, strict=True)
    ]


def short(shapes: str) -> str:
    """Return torch's list of shapes ("[[2, 3], [3], []]") with × inside of a shape.

    What has no shape is "–", and left out after the last shape. A text that is no such list stays.
    """
    try:
        operands = json.loads(shapes or "[]")
        if not isinstance(operands, list):
            return shapes
        while operands and operands[-1] == []:
            operands.pop()
        return ", ".join(map(_operand, operands)) or NO_SHAPE
    except (ValueError, RecursionError):  # another tool's file may hold anything
        return shapes


def _operand(sizes: Any) -> str:
    """Return one operand's shape, or those of a list of tensors in brackets."""
    if not isinstance(sizes, list):
        return str(sizes)
    if any(isinstance(size, list) for size in sizes):
        return f"[{', '.join(map(_operand, sizes))}]"
    return "×".join(map(str, sizes)) or NO_SHAPE


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
