"""Translates ETDumps of ExecuTorch to Kineto's format: runs as steps, instructions as operators.

The times of a dump have no unit. They are taken for nanoseconds, as its own Inspector does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from torchgauge.readers.executorch.dump_file import CALLS, RUN, DumpEvent, DumpRun, read_runs

RECORDER = "ExecuTorch"
DELEGATED = "delegate"


def as_kineto(data: bytes) -> bytes:
    """Return the dump as a trace; raises ValueError where it is damaged."""
    runs = read_runs(data)
    begins = [event.begin for run in runs for event in run.events]
    origin, events = min(begins, default=0), []
    for number, run in enumerate(run for run in runs if run.execution is not None):
        events += [_span(event, name, category, origin) for event, name, category in _spans(run)]
        assert run.execution is not None  # noqa: S101 - others are left out
        events.append(_span(run.execution, f"ProfilerStep#{number}", "user_annotation", origin))
    events += [
        _span(event, event.name, "cpu_op", origin)
        for run in runs
        if run.execution is None
        for event in run.events
    ]
    return msgspec.json.encode(
        {"recorder": RECORDER, "displayTimeUnit": "ns", "traceEvents": events}
    )


def _spans(run: DumpRun) -> Iterator[tuple[DumpEvent, str, str]]:
    """Yield the calls of instructions by the names of their operators, and backends' parts.

    A backend's clock is another one, and may be coarse: its parts stay inside of its call.
    """
    plain = [event for event in run.events if event.name not in (*CALLS, RUN, "")]
    names = {(event.instruction, event.begin): event.name for event in plain if not event.part}
    starts = sorted(names, key=lambda key: key[1])
    parts: dict[int, list[DumpEvent]] = {}
    for part in run.parts:
        parts.setdefault(part.instruction, []).append(part)
    position = 0
    for call in sorted(run.calls, key=lambda event: event.begin):
        while position < len(starts) and starts[position][1] < call.begin:
            position += 1
        inside = position < len(starts) and starts[position][1] <= call.end
        yield call, names[starts[position]] if inside else DELEGATED, "cpu_op"
        for part in parts.pop(call.instruction, ()):
            if call.begin <= part.begin < call.end:
                yield part._replace(end=min(part.end, call.end)), part.part, "cpu_op"


def _span(event: DumpEvent, name: str, category: str, origin: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": (event.begin - origin) / 1000,
        "dur": (event.end - event.begin) / 1000,
    }
