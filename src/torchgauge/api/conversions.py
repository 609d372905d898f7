"""Recorded traces, or parts of them, in the formats of other tools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from torchgauge.api.traces import rank_unknown, ranked
from torchgauge.errors import InputError
from torchgauge.files import packed, write_atomically
from torchgauge.traces.rank_file import events_of

if TYPE_CHECKING:
    from torchgauge.analyze.trace.recording import Recording
    from torchgauge.analyze.trace.selection import Part, Selection
    from torchgauge.report.export.recorded_stacks import Lines

Form = Literal["speedscope", "folded", "parquet", "chrome"]


class ReadOptions(NamedTuple):
    """How files are read; see `read_trace`."""

    python: bool = False
    partial: bool = False
    cache: bool = False


def convert_trace(
    path: str | Path,
    to: Form,
    output: str | Path,
    *,
    rank: int | None = None,
    begin: float | None = None,
    end: float | None = None,
    step: int | None = None,
    layer: str | None = None,
    python: bool = False,
    partial: bool = False,
    cache: bool = False,
    progress: bool | None = None,
) -> Path:
    """Write a trace, or a selected part of it, in another format; return the path.

    `to`: "speedscope" (a profile for each stream and thread, in real time), "folded" (stacks of
    layers, operators and kernels with their time in ns), "parquet" (all events as a table; extra
    `parquet`), or "chrome" (the recorded events themselves). It is compressed if `output` ends in
    .gz. `begin` and `end` are in s from the window's begin, `step` is the number of a marked step,
    `layer` a layer's path; host code is included if it begins in the part, device work if its
    launch does. The other options are those of `read_trace`.

    Raises InputError as `read_trace` for files, `rank-unknown`, `step-unknown`, `layer-unknown`,
    `part-empty`, `format-absent`, `option-conflict`, `output-unwritable`; MissingExtraError.
    """
    from torchgauge.analyze.trace.selection import Part

    part = Part(begin=begin, end=end, step=step, layer=layer)
    parts = converted(
        path,
        to,
        rank=rank,
        part=part,
        read_options=ReadOptions(python, partial, cache),
        progress=progress,
    )
    return write(parts, Path(output))


def write(parts: Iterable[bytes], path: Path) -> Path:
    """Write a file of these parts, packed where its name ends in .gz, and return the path."""
    return write_atomically(path, packed(parts) if path.suffix == ".gz" else parts)


def converted(
    path: str | Path,
    to: Form,
    *,
    rank: int | None,
    part: Part,
    read_options: ReadOptions,
    progress: bool | None = None,
) -> Iterator[bytes]:
    """Return the parts of the file that `convert_trace` writes; the first rank is read at once."""
    path = Path(path)
    if to not in _CONVERTERS:
        raise InputError(
            f"A trace cannot be converted to '{to}'.",
            id="format-absent",
            remedy=f"Choose one of {', '.join(_CONVERTERS)}.",
        )
    if to == "parquet":
        from torchgauge.readers.parquet.parquet import arrow

        arrow()
    files: list[tuple[int | None, Path]] = [(None, path)]
    if (rank_files := ranked(path)) is not None:
        files = [(number, file) for number, file in rank_files.items() if rank in (None, number)]
        if not files:
            raise rank_unknown(path.name, [*rank_files], rank)
    if to == "chrome" and len(files) > 1:
        raise _conflict("A trace file holds one rank.", "Choose one with --rank (rank=).")
    if to == "chrome" and read_options.partial:
        raise _conflict("Events are taken from whole files.", "Leave out --partial (partial=).")
    parts = _read(files, rank, part, read_options, progress)
    first = next(parts)
    return _CONVERTERS[to](itertools.chain([first], parts))


def _conflict(message: str, remedy: str) -> InputError:
    return InputError(message, id="option-conflict", remedy=remedy)


class _Rank(NamedTuple):
    """A part of one rank's recording; `label` tells it from others where there are others."""

    path: Path
    number: int | None
    label: str
    recording: Recording
    selection: Selection


def _read(
    files: Sequence[tuple[int | None, Path]],
    requested_rank: int | None,
    part: Part,
    read_options: ReadOptions,
    progress: bool | None,
) -> Iterator[_Rank]:
    from torchgauge.analyze.trace.recording import recording
    from torchgauge.analyze.trace.selection import select
    from torchgauge.api.preparation import showing

    for listed_rank, path in files:
        with showing(progress) as display:
            events = events_of(str(path), **read_options._asdict(), progress=display)
        recorded_rank = events.metadata.rank
        number = listed_rank if recorded_rank is None else recorded_rank
        if requested_rank not in (None, number):
            raise rank_unknown(path.name, [number], requested_rank)
        rank_recording = recording(events)
        label = f"rank {number}" if len(files) > 1 else ""
        yield _Rank(path, number, label, rank_recording, select(rank_recording, part))


def _speedscope(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report.export import trace_speedscope

    return trace_speedscope.parts(_lines(ranks))


def _folded(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report.export import trace_folded

    return trace_folded.parts(_lines(ranks))


def _lines(ranks: Iterable[_Rank]) -> Iterator[tuple[str, Lines]]:
    from torchgauge.report.export.recorded_stacks import Lines

    return ((rank.label, Lines(rank.recording, rank.selection)) for rank in ranks)


def _chrome(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.readers.kineto.raw_events import RawEvents
    from torchgauge.report.export import trace_events

    (rank,) = ranks
    recorder = rank.recording.events.metadata.recorder
    if recorder in ("JAX", "Proton"):
        raise InputError(
            f"Events of {recorder} are not copied.",
            id="option-conflict",
            cause="They are read in words of PyTorch's, and the file has others.",
            remedy="Convert to speedscope, folded or parquet; Perfetto opens the file itself.",
        )
    return trace_events.parts(RawEvents(rank.path), rank.recording.events, rank.selection)


def _parquet(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.readers.parquet.parquet import parts
    from torchgauge.traces.trace_cache import as_rank

    return parts(as_rank(rank.recording, rank.number, selection=rank.selection) for rank in ranks)


_CONVERTERS: dict[Form, Callable[[Iterable[_Rank]], Iterator[bytes]]] = {
    "speedscope": _speedscope,
    "folded": _folded,
    "parquet": _parquet,
    "chrome": _chrome,
}
