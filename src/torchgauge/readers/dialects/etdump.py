"""Translates ETDumps of ExecuTorch to Kineto's format: runs as steps, instructions as operators.

The times of a dump have no unit. They are taken for nanoseconds, as its own Inspector does.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import msgspec

from torchgauge.readers.executorch.flatbuffer import CALLS, RUN, DumpEvent, DumpRun, read_runs
from torchgauge.readers.executorch.program_file import DELEGATED

RECORDER = "ExecuTorch"


def as_kineto(data: bytes) -> bytes:
    """Return the dump as a trace; raises ValueError where it is damaged."""
    spans = b",".join(map(msgspec.json.encode, _all_spans(read_runs(data))))
    start = msgspec.json.encode({"recorder": RECORDER, "displayTimeUnit": "ns"})
    return start[:-1] + b',"traceEvents":[' + spans + b"]}"


def _all_spans(runs: list[DumpRun]) -> Iterator[dict[str, Any]]:
    # Of the runtime's clock: that of a backend may begin elsewhere.
    begins = (event.begin for run in runs for event in run.events if not event.part)
    origin, number = min(begins, default=0), 0
    for run in runs:
        if run.execution is None:
            for event in run.events:
                if not event.part:
                    yield _span(event, event.name, "cpu_op", origin)
            continue
        for event, name in _spans(run):
            yield _span(event, name, "cpu_op", origin)
        yield _span(run.execution, f"ProfilerStep#{number}", "user_annotation", origin)
        number += 1


def _spans(run: DumpRun) -> Iterator[tuple[DumpEvent, str]]:
    """Yield the calls of instructions by the names of their operators, and backends' parts.

    A backend's clock is another one, and may be coarse: its parts stay inside of its call.
    """
    plain = [event for event in run.events if event.name not in (*CALLS, RUN, "")]
    names = {(event.instruction, event.begin): event.name for event in plain if not event.part}
    starts = sorted(names, key=lambda key: key[1])
    parts: defaultdict[int, deque[DumpEvent]] = defaultdict(deque)
    for part in sorted(run.parts, key=lambda event: event.begin):
        parts[part.instruction].append(part)
    position = 0
    for call in sorted(run.calls, key=lambda event: event.begin):
        while position < len(starts) and starts[position][1] < call.begin:
            position += 1
        inside = position < len(starts) and starts[position][1] <= call.end
        yield call, names[starts[position]] if inside else DELEGATED
        own = parts[call.instruction]
        while own and own[0].begin < call.end:
            part = own.popleft()
            if part.begin >= call.begin:
                yield part._replace(end=min(part.end, call.end)), part.part


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
