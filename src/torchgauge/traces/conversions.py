"""Recorded traces, or parts of them, in the formats of other tools."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from torchgauge.analyze.trace.selection import Part
from torchgauge.errors import InputError, option_conflict
from torchgauge.files import packed, write_atomically
from torchgauge.progress import showing
from torchgauge.traces.rank_file import events_of
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import files_by_rank, rank_unknown

if TYPE_CHECKING:
    from torchgauge.analyze.trace.recording import Recording
    from torchgauge.analyze.trace.selection import Selection
    from torchgauge.report.export.stacks import Lines

Form = Literal["speedscope", "folded", "parquet", "chrome"]


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What a trace is converted to, and which part of it.

    Attributes:
        to: The format.
        rank: Of several ranks the one that is converted; None is all.
        part: What of each rank.
        reading: How files are read.

    Raises InputError `format-absent`; `option-conflict` for what the format cannot be made of.
    """

    to: Form
    rank: int | None = None
    part: Part = dataclasses.field(default_factory=Part)
    reading: ReadOptions = dataclasses.field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        if self.to not in _CONVERTERS:
            raise InputError(
                f"A trace cannot be converted to '{self.to}'.",
                id="format-absent",
                remedy=f"Choose one of {', '.join(_CONVERTERS)}.",
            )
        if self.to == "chrome" and self.reading.partial:
            raise option_conflict(
                "Events are taken from whole files.", "Leave out --partial (partial=)."
            )


def write(parts: Iterable[bytes], path: Path) -> Path:
    """Write a file of these parts, packed where its name ends in .gz, and return the path."""
    return write_atomically(path, packed(parts) if path.suffix == ".gz" else parts)


def converted(path: Path, conversion: Conversion, progress: bool | None = None) -> Iterator[bytes]:
    """Return the parts of the file that `convert_trace` writes; the first rank is read at once."""
    to, rank = conversion.to, conversion.rank
    if to == "parquet":
        from torchgauge.readers.parquet.parquet import arrow

        arrow()
    files: list[tuple[int | None, Path]] = [(None, path)]
    if (rank_files := files_by_rank(path)) is not None:
        files = [(number, file) for number, file in rank_files.items() if rank in (None, number)]
        if not files:
            raise rank_unknown(path.name, [*rank_files], rank)
    parts = _read(files, conversion, progress)
    first = next(parts)
    parts = itertools.chain([first], parts)
    if to == "chrome" and len(files) > 1:
        return _merged(path, parts, conversion, progress)
    return _CONVERTERS[to](parts)


class _Rank(NamedTuple):
    """A part of one rank's recording; `label` tells it from others where there are others."""

    path: Path
    number: int | None
    label: str
    recording: Recording
    selection: Selection


def _read(
    files: Sequence[tuple[int | None, Path]], conversion: Conversion, progress: bool | None
) -> Iterator[_Rank]:
    from torchgauge.analyze.trace.recording import recording
    from torchgauge.analyze.trace.selection import select

    for listed_rank, path in files:
        with showing(progress) as display:
            events = events_of(str(path), conversion.reading, display)
        recorded_rank = events.metadata.rank
        number = listed_rank if recorded_rank is None else recorded_rank
        if conversion.rank not in (None, number):
            raise rank_unknown(path.name, [number], conversion.rank)
        rank_recording = recording(events)
        label = f"rank {number}" if len(files) > 1 else ""
        yield _Rank(path, number, label, rank_recording, select(rank_recording, conversion.part))


def _speedscope(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report.export import speedscope as trace_speedscope

    return trace_speedscope.parts(_lines(ranks))


def _folded(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report.export import folded as trace_folded

    return trace_folded.parts(_lines(ranks))


def _lines(ranks: Iterable[_Rank]) -> Iterator[tuple[str, Lines]]:
    from torchgauge.report.export.stacks import Lines

    return ((rank.label, Lines(rank.recording, rank.selection)) for rank in ranks)


def _chrome(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.readers.kineto.raw_events import RawEvents
    from torchgauge.report.export import trace_events

    (rank,) = ranks
    _check_copied(rank)
    return trace_events.parts(RawEvents(rank.path), rank.recording.events, rank.selection)


def _merged(
    path: Path, ranks: Iterable[_Rank], conversion: Conversion, progress: bool | None
) -> Iterator[bytes]:
    """Return the events of all ranks on the clock that their collectives give."""
    from torchgauge.readers.kineto.raw_events import RawEvents
    from torchgauge.report.export import trace_events
    from torchgauge.traces.rank_files import read

    with showing(progress) as display:
        trace = read(path, conversion.reading, display)
    waits = trace.job.waits if trace.job is not None else ()
    ahead = {wait.rank: round(wait.skew * 1e9) for wait in waits}
    begins = [
        None if rank.contents.begin is None else rank.contents.begin - ahead.get(rank.rank or 0, 0)
        for rank in trace.ranks
    ]
    known_begins = [begin for begin in begins if begin is not None]
    base = min(known_begins) if len(known_begins) == len(begins) else 0

    def merged_ranks() -> Iterator[trace_events.MergedRank]:
        for rank in ranks:
            _check_copied(rank)
            events = rank.recording.events
            number = rank.number or 0
            shift = (events.metadata.base_time or 0) - ahead.get(number, 0) - base
            yield trace_events.MergedRank(
                number, RawEvents(rank.path), events, rank.selection, shift
            )

    return trace_events.merged_parts(merged_ranks(), base)


def _check_copied(rank: _Rank) -> None:
    """Raise InputError `option-conflict` for events that are not as the file has them."""
    recorder = rank.recording.events.metadata.recorder
    if recorder not in ("PyTorch", None):
        raise option_conflict(
            f"Events of {recorder} are not copied.",
            "Convert to speedscope, folded or parquet; Perfetto opens the file itself.",
            cause="They are read in PyTorch's terms, and the file has others.",
        )


def _parquet(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.readers.parquet.parquet import parts
    from torchgauge.traces.rank_file import as_rank

    return parts(as_rank(rank.recording, rank.number, selection=rank.selection) for rank in ranks)


_CONVERTERS: dict[Form, Callable[[Iterable[_Rank]], Iterator[bytes]]] = {
    "speedscope": _speedscope,
    "folded": _folded,
    "parquet": _parquet,
    "chrome": _chrome,
}
