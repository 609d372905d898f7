"""Recorded traces, read from files: of one process, or of all ranks of a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.model.events import MOST_RANKS
from torchgauge.model.record import MeasurementWarning

if TYPE_CHECKING:
    from torchgauge.api.rank_file import Read
    from torchgauge.model.trace import RankTrace, Trace
    from torchgauge.model.trace_diff import TraceDiff

_OTHER = "trace-no-events"  # whole JSON, as it lies beside traces
_NUMBER = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)


def read_trace(
    path: str | Path,
    *,
    python: bool = False,
    partial: bool = False,
    cache: bool = False,
    memory_limit: int | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> Trace:
    """Read a Kineto trace, or those of a job's ranks in a folder or a zip; torch is not needed.

    `python` keeps the Python functions of a trace with stacks, which are most of its events. With
    `partial` a damaged file gives what can be read of it, and a warning. `cache` keeps the events
    beside each file in `FILE.torchgauge.parquet`, and reads that while the file is unchanged (extra
    `parquet`). `memory_limit` is in bytes, of all processes together: of a file that needs more the
    first part is read, and a warning says up to when. Of several files `workers` are read at once,
    as many as there are cores unless said otherwise; one that cannot be read is a failed warning,
    and the others stay; JSON of another kind is left out with a warning. Of an archive nothing is
    unpacked to disk, and nothing cached.

    Raises InputError as `trace.kineto.read_events`, and `trace-none` for a folder without traces,
    `cache-and-limit`; MissingExtraError where `cache` needs PyArrow.
    """
    from torchgauge.api.preparation import showing
    from torchgauge.api.rank_file import read_rank
    from torchgauge.api.trace_files import trace_files
    from torchgauge.model.trace import Trace

    path = Path(path)
    if cache and memory_limit is not None:
        raise InputError(
            "A cache holds a whole trace, and a memory limit may cut it.",
            id="cache-and-limit",
            remedy="Leave out one of the two.",
        )
    files = trace_files(path)
    if files is None:
        with showing(progress) as shown:
            one = read_rank(
                str(path), python=python, partial=partial, cache=cache, memory_limit=memory_limit,
                progress=shown,
            )  # fmt: skip
        return Trace(name=path.name, ranks=() if one.rank is None else (one.rank,))
    from torchgauge.api.rank_files import cores, read_ranks

    workers = min(workers or cores(), len(files))
    with showing(progress) as shown:
        shown.start("reading traces")
        read = read_ranks(
            list(map(str, files)),
            python=python,
            partial=partial,
            cache=cache,
            memory_limit=memory_limit and memory_limit // workers,
            workers=workers,
            progress=shown,
        )
    return _together(path.name, read)


def compare_traces(
    baseline: Trace | str | Path, current: Trace | str | Path, *, rank: int | None = None
) -> TraceDiff:
    """Compare two traces, or the files or folders that hold them: `rank` of both, else the first.

    Raises InputError `rank-unknown`, and what `read_trace` raises.
    """
    from torchgauge.analyze.trace_compare import compare_traces as compared

    sides = [
        one if not isinstance(one, str | Path) else _loaded(one) for one in (baseline, current)
    ]
    common = [one.rank for one in sides[0].ranks if one.rank in {o.rank for o in sides[1].ranks}]
    number = rank if rank is not None or not common else common[0]
    ranks = [_rank(one, number if rank is not None or common else None) for one in sides]
    return compared(ranks[0], ranks[1], (sides[0].name, sides[1].name))


def _loaded(path: str | Path) -> Trace:
    from torchgauge.api.contents import content
    from torchgauge.model import codec
    from torchgauge.model.trace import Trace

    if content(Path(path)) != "record":
        return read_trace(path)
    found = codec.load(Path(path))
    if isinstance(found, Trace):
        return found
    raise InputError(
        f"'{path}' holds a {type(found).__name__.lower()}, not a trace.",
        id="not-a-trace",
        remedy="Compare traces with traces, and runs with runs.",
    )


def _rank(trace: Trace, number: int | None) -> RankTrace:
    if number is None:
        return trace.ranks[0]
    for one in trace.ranks:
        if one.rank == number:
            return one
    raise rank_unknown(trace.name, [one.rank for one in trace.ranks], number)


def rank_unknown(name: str, known: Sequence[int | None], number: int | None) -> InputError:
    """Return the error that a trace has no such rank."""
    return InputError(
        f"There is no trace of rank {number} in {name}.",
        id="rank-unknown",
        cause=f"There are those of {', '.join(map(str, known))}.",
        remedy="Choose one of these.",
    )


def ranked(path: Path) -> dict[int, Path] | None:
    """Return the files of a folder or an archive by the ranks that `read_trace` gives them.

    Ranks are read from how each begins. None of a single file.
    """
    from torchgauge.api.trace_files import trace_files
    from torchgauge.trace.raw_events import ranks_before

    files = trace_files(path)
    if files is None:
        return None
    traces: dict[Path, tuple[int | None, int | None]] = {}
    for file in files:
        try:
            traces[file] = ranks_before(file)
        except InputError as error:
            if error.id != _OTHER:
                traces[file] = None, None  # what is wrong with it is said when it is read
    named = [(rank, file.name) for file, (rank, _) in traces.items()]
    numbers = _numbers(named, max((world or 0 for _, world in traces.values()), default=0))
    found = {
        number: file for number, file in zip(numbers, traces, strict=True) if number is not None
    }
    return dict(sorted(found.items()))


def _together(name: str, read: Sequence[Read]) -> Trace:
    """Return the trace of a job; raise the first error where no file could be read."""
    from torchgauge.analyze.job import job
    from torchgauge.analyze.job_findings import job_findings
    from torchgauge.model.trace import Trace

    good = [one for one in read if one.rank is not None]
    if not good:
        raise next(one.error for one in read if one.error is not None)
    warnings = [_unread(one.error) for one in read if one.error is not None]
    known: dict[int, Read] = {}
    world = max((one.rank.world or 0 for one in good if one.rank), default=0)
    files = [(one.rank.rank if one.rank else None, Path(one.file).name) for one in good]
    for number, one in zip(_numbers(files, world), good, strict=True):
        assert one.rank is not None  # noqa: S101 - only good ones are numbered
        if number is None:
            warnings.append(_of_no_rank(one.file))
            continue
        if number in known:
            warnings.append(_twice(number, known[number].file))
        known[number] = one._replace(rank=msgspec.structs.replace(one.rank, rank=number))
    ranks = {number: one.rank for number, one in sorted(known.items()) if one.rank is not None}
    world = max((one.world or 0 for one in ranks.values()), default=0)
    trace = Trace(
        name=name,
        ranks=tuple(ranks.values()),
        missing=tuple(sorted(set(range(world)) - set(ranks))),
        warnings=tuple(warnings),
    )
    if len(ranks) > 1:
        together, told = job(ranks, {number: one.calls for number, one in known.items()})
        trace = msgspec.structs.replace(trace, ranks=tuple(told), job=together)
    return msgspec.structs.replace(trace, findings=job_findings(trace))


def _numbers(files: Sequence[tuple[int | None, str]], world: int) -> list[int | None]:
    """Return each file's rank: as it says it, else as its name does, else its place.

    None where the place is another's or there is none: the front end of vLLM writes a file beside
    those of its ranks.
    """
    said = [_said(number, name) for number, name in files]
    return [
        number if number is not None or place in said or (world and place >= world) else place
        for place, number in enumerate(said)
    ]


def _said(number: int | None, name: str) -> int | None:
    if number is not None:
        return number
    named = _NUMBER.search(name)
    return int(named[1]) if named and int(named[1]) < MOST_RANKS else None


def _unread(error: TorchgaugeError) -> MeasurementWarning:
    """Return what is said of a file that was not read: JSON of another kind is no failure."""
    said = MeasurementWarning.of(error, "trace")
    if error.id != _OTHER:
        return said
    remedy = "Leave it where it is a configuration or a result; else record it again."
    return msgspec.structs.replace(said, probe="", failed=False, remedy=remedy)


def _of_no_rank(file: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="trace-no-rank",
        message=f"{Path(file).name} says of no rank that it is its file, and is left out.",
        cause="The other files are of all ranks that its place among them could mean.",
        remedy="Read it alone, or put its rank into its name (rank0).",
    )


def _twice(number: int, file: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="trace-rank-twice",
        message=f"Two files are of rank {number}: {Path(file).name} is left out.",
        cause="The folder holds more than one recording.",
        remedy="Keep the files of one recording in a folder of their own.",
    )
