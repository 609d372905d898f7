"""Recorded traces, or parts of them, in the formats of other tools."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from torchgauge.api.rank_file import events_of
from torchgauge.api.traces import rank_unknown, ranked
from torchgauge.errors import InputError
from torchgauge.files import packed, write_atomically

if TYPE_CHECKING:
    from torchgauge.analyze.recording import Recording
    from torchgauge.analyze.selection import Part, Selection
    from torchgauge.report.recorded_stacks import Lines

Form = Literal["speedscope", "folded", "parquet", "chrome"]


class How(NamedTuple):
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
    """Write a trace, or the part of it that is asked for, in another format; return the path.

    `to`: "speedscope" (a profile for each stream and thread, in real time), "folded" (stacks of
    layers, operators and kernels with their time in ns), "parquet" (all events as a table; extra
    `parquet`), or "chrome" (the recorded events themselves). It is packed where `output` ends in
    .gz. `begin` and `end` in s from the window's begin, `step` the number of a marked step, `layer`
    a layer's path; host code is in a part when it begins in it, device work when its launch does.
    The other options are those of `read_trace`.

    Raises InputError as `read_trace` for files, `rank-unknown`, `step-unknown`, `layer-unknown`,
    `part-empty`, `format-absent`, `option-conflict`, `output-unwritable`; MissingExtraError.
    """
    from torchgauge.analyze.selection import Part

    part = Part(begin=begin, end=end, step=step, layer=layer)
    parts = converted(
        path, to, rank=rank, part=part, how=How(python, partial, cache), progress=progress
    )
    return write(parts, Path(output))


def write(parts: Iterable[bytes], path: Path) -> Path:
    """Write a file of these pieces, packed where its name ends in .gz, and return the path."""
    return write_atomically(path, packed(parts) if path.suffix == ".gz" else parts)


def converted(
    path: str | Path,
    to: Form,
    *,
    rank: int | None,
    part: Part,
    how: How,
    progress: bool | None = None,
) -> Iterator[bytes]:
    """Return the pieces of the file that `convert_trace` writes; the first rank is read at once."""
    path = Path(path)
    if to not in _WAYS:
        raise InputError(
            f"A trace cannot be converted to '{to}'.",
            id="format-absent",
            remedy=f"Choose one of {', '.join(_WAYS)}.",
        )
    if to == "parquet":
        from torchgauge.trace.parquet import arrow

        arrow()
    files: list[tuple[int | None, Path]] = [(None, path)]
    if (every := ranked(path)) is not None:
        files = [(number, file) for number, file in every.items() if rank in (None, number)]
        if not files:
            raise rank_unknown(path.name, [*every], rank)
    if to == "chrome" and len(files) > 1:
        raise _conflict("A trace file holds one rank.", "Choose one with --rank (rank=).")
    if to == "chrome" and how.partial:
        raise _conflict("Events are taken from whole files.", "Leave out --partial (partial=).")
    parts = _read(files, rank, part, how, progress)
    first = next(parts)
    return _WAYS[to](itertools.chain([first], parts))


def _conflict(message: str, remedy: str) -> InputError:
    return InputError(message, id="option-conflict", remedy=remedy)


class _Rank(NamedTuple):
    """A part of one rank's recording; `label` tells it from others where there are others."""

    path: Path
    number: int | None
    label: str
    recording: Recording
    kept: Selection


def _read(
    files: Sequence[tuple[int | None, Path]],
    asked: int | None,
    part: Part,
    how: How,
    progress: bool | None,
) -> Iterator[_Rank]:
    from torchgauge.analyze.recording import recording
    from torchgauge.analyze.selection import select
    from torchgauge.api.preparation import showing

    for known, path in files:
        with showing(progress) as shown:
            events = events_of(str(path), **how._asdict(), progress=shown)
        said = events.metadata.rank
        number = known if said is None else said
        if asked not in (None, number):
            raise rank_unknown(path.name, [number], asked)
        found = recording(events)
        label = f"rank {number}" if len(files) > 1 else ""
        yield _Rank(path, number, label, found, select(found, part))


def _speedscope(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report import trace_speedscope

    return trace_speedscope.parts(_lines(ranks))


def _folded(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report import trace_folded

    return trace_folded.parts(_lines(ranks))


def _lines(ranks: Iterable[_Rank]) -> Iterator[tuple[str, Lines]]:
    from torchgauge.report.recorded_stacks import Lines

    return ((one.label, Lines(one.recording, one.kept)) for one in ranks)


def _chrome(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.report import trace_events
    from torchgauge.trace.raw_events import RawEvents

    (one,) = ranks
    recorder = one.recording.events.metadata.recorder
    if recorder in ("JAX", "Proton"):
        raise InputError(
            f"Events of {recorder} are not copied.",
            id="option-conflict",
            cause="They are read in words of PyTorch's, and the file has others.",
            remedy="Convert to speedscope, folded or parquet; Perfetto opens the file itself.",
        )
    return trace_events.parts(RawEvents(one.path), one.recording.events, one.kept)


def _parquet(ranks: Iterable[_Rank]) -> Iterator[bytes]:
    from torchgauge.api.trace_cache import as_rank
    from torchgauge.trace.parquet import parts

    return parts(as_rank(one.recording, one.number, kept=one.kept) for one in ranks)


_WAYS: dict[Form, Callable[[Iterable[_Rank]], Iterator[bytes]]] = {
    "speedscope": _speedscope,
    "folded": _folded,
    "parquet": _parquet,
    "chrome": _chrome,
}
