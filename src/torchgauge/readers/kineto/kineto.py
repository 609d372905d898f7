"""Read a Kineto trace: recorded bytes to columns, chunk by chunk, so that memory stays small."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchgauge import units
from torchgauge.errors import InputError
from torchgauge.progress import Progress
from torchgauge.readers.dialects.dialects import translated
from torchgauge.readers.kineto.categories import Fitting, before, fitting
from torchgauge.readers.kineto.chunks import Chunks
from torchgauge.readers.kineto.decoding import Event
from torchgauge.readers.kineto.heads import ARROW, END, MEMORY, NAME, SPAN, Heads, PythonDetail
from torchgauge.readers.kineto.metadata import Names, metadata
from torchgauge.readers.kineto.points import Allocations, Arrows, Pairs
from torchgauge.readers.kineto.spans import Spans
from torchgauge.readers.unpacking import open_trace, trace_text
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import Codes, Events

_CHUNK = 1 << 18  # with what is decoded from it, it stays in a core's cache


def read_events(
    source: str | Path | bytes,
    *,
    python: PythonDetail = "modules",
    launch_arrows: bool = True,
    partial: bool = False,
    memory_limit: int | None = None,
    chunk_size: int = _CHUNK,
    progress: Progress | None = None,
) -> Events:
    """Read a trace as torch.profiler exports it: .json, .json.gz, a .zip with one, or its bytes.

    `python`: which Python functions are kept of a trace with stacks, where they are most of the
    events; "modules" are the calls of nn.Modules. `launch_arrows`: whether arrows from launches to
    their work are kept: correlations say the same, and only writing the trace again needs them.
    With `partial` a damaged or cut-off file gives what can be read, and a warning `trace-damaged`.
    Of one that needs more than `memory_limit` bytes, analysis included, the first part that fits is
    read, and a warning `trace-memory-limit` says up to when; that takes a second pass.
    `chunk_size`: bytes of text decoded at once. `progress` is told how far it is.

    Raises InputError: `file-missing`, `file-not-regular`, `trace-directory`, `trace-archive`,
    `trace-too-large`, and for files that are no (whole) trace `trace-empty`, `trace-not-json`,
    `trace-no-events`, `trace-truncated`, `trace-malformed`, `trace-packing`; `memory-limit` where
    nothing fits.
    """

    def reading() -> AbstractContextManager[Chunks]:
        return _reading(source, partial=partial, chunk_size=chunk_size, progress=progress)

    fits = None
    if memory_limit is not None:
        with reading() as chunks:
            fits = fitting(chunks, memory_limit, functions=python == "all")
    building = _Building(Heads(python, launch_arrows=launch_arrows))
    with reading() as chunks:
        for events in chunks:
            building.add(events if fits is None else before(events, fits.until))
        all_events = building.finish(chunks)
    if fits is None:
        return all_events
    return dataclasses.replace(all_events, warnings=(*all_events.warnings, _cut_short(fits)))


@contextlib.contextmanager
def _reading(
    source: str | Path | bytes, *, partial: bool, chunk_size: int, progress: Progress | None
) -> Iterator[Chunks]:
    name = "The recording" if isinstance(source, bytes) else str(source)
    with open_trace(source if isinstance(source, bytes) else Path(source)) as file:
        try:
            yield Chunks(trace_text(file, name, chunk_size, progress), name, partial=partial)
        except ValueError as error:
            raise InputError(
                f"{name} cannot be read as a Kineto trace.",
                id="trace-malformed",
                cause=f"The time of an event is invalid: {error}",
                remedy="Record it again with torch.profiler.",
            ) from error


def _cut_short(fits: Fitting) -> MeasurementWarning:
    read, total = fits.until - fits.begin, fits.end - fits.begin
    return MeasurementWarning(
        id="trace-memory-limit",
        message=f"Only the first {units.time(read * 1e-9)} of {units.time(total * 1e-9)} are read.",
        cause=f"All of it needs about {units.size(fits.needed, 3)} of memory, more than the limit.",
        remedy="Give more, or cut out a part with --to chrome --from … --until ….",
    )


class _Building:
    """Sorts events by what they are, to the columns that are in the making."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._spans = Spans(heads)
        self._memory = Allocations(heads)
        self._flows = Arrows(heads)
        self._names = Names()
        self._pairs = Pairs()

    def add(self, events: list[Event]) -> None:
        # Without a time it cannot be placed.
        events = [e for e in events if e.ts or e.ph == "M"]
        heads = self._heads.code(events)
        kinds = self._heads.kinds(heads)

        def chosen(mask: NDArray[np.bool_]) -> tuple[list[Event], Codes]:
            return list(compress(events, mask.tolist())), heads[mask]

        self._spans.add(*chosen(kinds >= SPAN), kinds[kinds >= SPAN])
        self._memory.add(*chosen(kinds == MEMORY))
        self._flows.add(*chosen(kinds == ARROW))
        self._names.add(chosen(kinds == NAME)[0])
        self._pairs.add(chosen(kinds == END)[0])

    def finish(self, chunks: Chunks) -> Events:
        if joined := self._pairs.spans():
            heads = self._heads.code(joined)
            is_span = self._heads.kinds(heads) >= SPAN
            kinds = self._heads.kinds(heads[is_span])
            self._spans.add(list(compress(joined, is_span.tolist())), heads[is_span], kinds)
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
        if unpaired := self._pairs.unpaired:
            yield MeasurementWarning(
                id="trace-unpaired",
                message=f"{unpaired:,} events are left out of the trace.",
                cause="They are begins without an end, or ends without a begin (phases B and E).",
                remedy="Record it again, to its end.",
            )
