"""Events of a trace kept as Parquet beside its file, so that the next reading takes less time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from torchgauge.analyze.trace.recording import Recording, event_locations, recording
from torchgauge.analyze.trace.selection import Selection
from torchgauge.errors import InputError
from torchgauge.files import write_atomically
from torchgauge.progress import Progress
from torchgauge.readers.kineto.heads import PythonDetail
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.readers.parquet import parquet, parquet_reading
from torchgauge.readers.parquet.parquet_facts import Origin, facts_of
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import Events

SUFFIX = ".torchgauge.parquet"


def cached_events(
    file: Path, *, python: PythonDetail, partial: bool, progress: Progress | None = None
) -> Events:
    """Return what `read_events` does, from the cache where it has that, else with a new one.

    A cache counts while size and time of change of the trace are those that it was made of. Of a
    damaged trace none is kept. Where none can be written, a warning says so.

    Raises MissingExtraError, and InputError as `read_events`.
    """
    parquet.arrow()
    cache_file = file.with_name(file.name + SUFFIX)
    origin = _origin(file, python)
    if origin is not None and (cached := parquet_reading.read(cache_file, origin)) is not None:
        return cached
    events = read_events(file, python=python, partial=partial, progress=progress)
    if origin is None:
        return _unkept(events, "It lies in an archive, beside which nothing is kept.")
    damaged = any(warning.id == "trace-damaged" for warning in events.warnings)
    if damaged or _origin(file, python) != origin:
        return events
    try:
        write_atomically(cache_file, parquet.parts([_complete_rank(events, origin)]))
    except InputError as error:
        return _unkept(events, f"{error.message} {error.cause}")
    return events


def _unkept(events: Events, cause: str) -> Events:
    warning = MeasurementWarning(
        id="trace-cache-unwritten",
        message="The trace was read and not kept for the next time.",
        cause=cause,
        remedy="Copy the trace to a folder that can be written, or leave out --cache.",
    )
    return dataclasses.replace(events, warnings=(*events.warnings, warning))


def as_rank(recorded: Recording, number: int | None, selection: Selection) -> parquet.Rank:
    """Return what is kept of a recording as it is written."""
    masks = (selection.spans, selection.memory, selection.flows)
    spans, memory, flows = (int(mask.sum()) for mask in masks)
    facts = facts_of(recorded.events, (spans, memory, flows))
    return parquet.Rank(
        number, recorded.events, event_locations(recorded), np.concatenate(masks), facts
    )


def _complete_rank(events: Events, origin: Origin) -> parquet.Rank:
    counts = (len(events), len(events.memory.time), len(events.flows.time))
    facts = facts_of(events, counts, origin)
    rows = np.ones(sum(counts), np.bool_)
    number = events.metadata.rank
    return parquet.Rank(number, events, event_locations(recording(events)), rows, facts)


def _origin(file: Path, python: PythonDetail) -> Origin | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return Origin(status.st_size, status.st_mtime_ns, python) if file.is_file() else None
