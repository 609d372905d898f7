"""The file of one rank, read in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np

from torchgauge.analyze.communication.collectives import Calls, Message
from torchgauge.analyze.timeline.launches import is_graph_launch
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.recording import Recording, devices, event_locations, recording
from torchgauge.analyze.trace.selection import Selection, select, selected_events, waits_for_others
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.files import is_folder, write_atomically
from torchgauge.progress import Progress
from torchgauge.readers.kineto.categories import PythonDetail
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.readers.parquet import parquet, parquet_reading
from torchgauge.readers.parquet.parquet_columns import Origin, facts_of
from torchgauge.records.finding import Failure
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import Events
from torchgauge.records.trace.trace import RankTrace
from torchgauge.records.work.roofline import Roofs
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import trace_files

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


class RankResult(NamedTuple):
    """What was read from one rank's file: its record and collectives, or the error it ended in."""

    file: str
    rank: RankTrace | None = None
    calls: Calls = Calls({})
    error: TorchgaugeError | None = None


def read_rank(file: str, options: ReadOptions, progress: Progress | None = None) -> RankResult:
    """Read one file in this process; what is wrong with it is raised."""
    events = events_of(file, options, progress, launch_arrows=False)
    if progress is not None:
        progress.start("analysing")
    name, part = Path(file).name, options.part
    behind_others = False
    if not part.is_whole:
        complete_recording = recording(events)
        selection = select(complete_recording, part)
        behind_others = waits_for_others(complete_recording, selection)
        events = selected_events(events, selection)
    roofs = datasheet([device.name for device in devices(events)])
    rank, calls = rank_trace(
        events,
        name,
        str(part),
        behind_others=behind_others,
        timeline_bytes=options.timeline_bytes,
        roofs=roofs,
        captures=list(_captures(file, options, events)),
    )
    return RankResult(file, rank, calls)


def _captures(file: str, options: ReadOptions, events: Events) -> Iterator[Events]:
    """Yield the recordings of captures for the graphs that the events of a file replay."""
    path = Path(options.capture or Path(file).parent / "capture_traces")
    has_replays = any(map(is_graph_launch, events.name.values))
    if options.capture is None and not (has_replays and is_folder(path)):
        return
    for capture in trace_files(path) or [path]:
        recording = read_events(capture, partial=options.partial, launch_arrows=False)
        if recording.metadata.rank in (None, events.metadata.rank):
            yield recording


def datasheet(names: Sequence[str]) -> Roofs | None:
    """Return the roofs of the device by its name; None of several kinds, or of an unknown one."""
    from torchgauge.device.roofs import peaks

    with contextlib.suppress(InputError):
        return peaks.find(names[0]) if len(set(names)) == 1 else None
    return None


def events_of(
    file: str, options: ReadOptions, progress: Progress | None = None, *, launch_arrows: bool = True
) -> Events:
    """Return the events of one file, from the cache beside it if requested.

    `launch_arrows` as `read_events` takes it; a cache has them in any case.
    """
    detail: PythonDetail = "all" if options.python else "modules"
    if progress is not None:
        progress.start("reading")
    if options.cache:
        return cached_events(Path(file), python=detail, partial=options.partial, progress=progress)
    return read_events(
        file,
        python=detail,
        launch_arrows=launch_arrows,
        partial=options.partial,
        memory_limit=options.memory_limit,
        progress=progress,
    )


# CPU seconds. What a process keeps of the memory that files took goes with it; starting the next
# takes some 0.3.
LIFETIME = 4.0
# Before each answer: its bytes, and whether the process reads another file.
HEADER = struct.Struct(">Q?")


class Answer(msgspec.Struct, frozen=True):
    """`RankResult` as it travels between processes."""

    rank: RankTrace | None = None
    calls: tuple[tuple[Message, tuple[int, ...], tuple[int, ...]], ...] = ()
    steps: tuple[tuple[Message, tuple[int, ...]], ...] = ()
    failure: Failure | None = None


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer each line of JSON, a file and its options, until the process has had its lifetime.

    An answer is a `HEADER` and that many bytes.
    """
    for line in questions:
        file, options = json.loads(line)
        data = answered(file, ReadOptions(**options))
        goes_on = time.process_time() < LIFETIME
        answers.write(HEADER.pack(len(data), goes_on) + data)
        answers.flush()
        if not goes_on:
            break


def answered(file: str, options: ReadOptions) -> bytes:
    """Read a file in this process, and return its `Answer` as bytes."""
    try:
        result = read_rank(file, options)
    except TorchgaugeError as error:
        return _encode(Answer(failure=Failure.from_error(error)))
    calls = tuple(
        (message, tuple(begin.tolist()), tuple(end.tolist()))
        for message, (begin, end) in result.calls.by_message.items()
    )
    steps = tuple((message, tuple(step.tolist())) for message, step in result.calls.steps.items())
    return _encode(Answer(rank=result.rank, calls=calls, steps=steps))


def decoded(file: str, data: bytes) -> RankResult:
    """Return what an `Answer` says. Raises `msgspec.MsgspecError` for other bytes."""
    answer = _decode(data)
    if answer.failure is not None:
        return RankResult(file, error=answer.failure.error())
    calls = {
        message: (np.array(begin, np.int64), np.array(end, np.int64))
        for message, begin, end in answer.calls
    }
    steps = {message: np.array(step, np.int64) for message, step in answer.steps}
    return RankResult(file, answer.rank, Calls(calls, steps))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode
