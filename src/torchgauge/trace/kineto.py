"""Read a Kineto trace: recorded bytes to columns, chunk by chunk, so that memory stays small."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.model.events import Events
from torchgauge.model.record import MeasurementWarning
from torchgauge.trace.chunks import Chunks, Event
from torchgauge.trace.columns import Labels
from torchgauge.trace.dialects import translated
from torchgauge.trace.metadata import Names, metadata
from torchgauge.trace.points import Allocations, Arrows
from torchgauge.trace.spans import PythonDetail, Spans
from torchgauge.trace.unpacking import open_trace, unpacked

_CHUNK = 1 << 19  # with what is decoded from it, it stays in a core's cache


def read_events(
    source: str | Path | bytes,
    *,
    python: PythonDetail = "modules",
    partial: bool = False,
    chunk_size: int = _CHUNK,
) -> Events:
    """Read a trace as torch.profiler exports it: .json, .json.gz, a .zip with one, or its bytes.

    `python`: which Python functions are kept of a trace with stacks, where they are most of the
    events; "modules" are the calls of nn.Modules. With `partial` a damaged or cut-off file gives
    what can be read, and a warning `trace-damaged`. `chunk_size`: bytes of text decoded at once.

    Raises InputError: `file-missing`, `trace-directory`, `trace-archive`, `trace-too-large`, and
    for files that are no (whole) trace `trace-empty`, `trace-not-json`, `trace-no-events`,
    `trace-truncated`, `trace-malformed`, `trace-packing`.
    """
    name = "The recording" if isinstance(source, bytes) else str(source)
    building = _Building(python)
    with open_trace(source if isinstance(source, bytes) else Path(source)) as file:
        chunks = Chunks(unpacked(file, name, chunk_size), name, partial=partial)
        for events in chunks:
            try:
                building.add(events)
            except ValueError as error:
                raise InputError(
                    f"{name} cannot be read as a Kineto trace.",
                    id="trace-malformed",
                    cause=f"The time of an event is none: {error}",
                    remedy="Record it again with torch.profiler.",
                ) from error
    return building.finish(chunks)


class _Building:
    """Sorts events by what they are, to the columns that are in the making."""

    def __init__(self, python: PythonDetail) -> None:
        self._threads = Labels()
        self._spans = Spans(self._threads, python)
        self._memory = Allocations(self._threads)
        self._flows = Arrows(self._threads)
        self._names = Names()
        self._unpaired = 0

    def add(self, events: list[Event]) -> None:
        by_phase: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            if event.ts or event.ph == "M":  # without a time it cannot be placed
                by_phase[event.ph].append(event)
        self._spans.add(by_phase["X"])
        self._memory.add(by_phase["i"] + by_phase["I"])
        self._flows.add(by_phase["s"] + by_phase["f"])
        self._names.add(by_phase["M"])
        self._unpaired += len(by_phase["B"])

    def finish(self, chunks: Chunks) -> Events:
        times = (self._spans.start, self._memory.time, self._flows.time)
        origin = min((t.earliest for t in times if t.earliest is not None), default=0)
        spans = self._spans.finish(origin)
        unsorted = spans.pop("unsorted")
        events = Events(
            **spans,
            memory=self._memory.finish(origin),
            flows=self._flows.finish(origin),
            metadata=metadata(origin, chunks.headers, self._names),
            warnings=tuple(self._warnings(chunks.damage)),
        )
        return translated(events, unsorted)

    def _warnings(self, damage: str | None) -> Iterator[MeasurementWarning]:
        if damage is not None:
            yield MeasurementWarning(
                id="trace-damaged",
                message="The trace is damaged: what could be read of it is shown.",
                cause=damage,
                remedy="Copy or record it again.",
            )
        if self._unpaired:
            yield MeasurementWarning(
                id="trace-unpaired",
                message=f"{self._unpaired:,} events are left out of the trace.",
                cause="Their begin and end are apart (phases B and E), which torch never writes.",
                remedy="Record it with torch.profiler.",
            )
