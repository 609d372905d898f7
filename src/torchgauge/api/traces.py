"""Recorded traces, read from files: of one process, or of all ranks of a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.events import MOST_RANKS

if TYPE_CHECKING:
    from torchgauge.records.trace.trace import RankTrace, Trace
    from torchgauge.records.trace.trace_diff import TraceDiff
    from torchgauge.traces.rank_file import RankResult

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
    from torchgauge.records.trace.trace import Trace
    from torchgauge.traces.rank_file import read_rank
    from torchgauge.traces.trace_files import trace_files

    path = Path(path)
    if cache and memory_limit is not None:
        raise InputError(
            "A cache holds a whole trace, and a memory limit may cut it.",
            id="cache-and-limit",
            remedy="Leave out one of the two.",
        )
    files = trace_files(path)
    if files is None:
        with showing(progress) as display:
            result = read_rank(
                str(path), python=python, partial=partial, cache=cache, memory_limit=memory_limit,
                progress=display,
            )  # fmt: skip
        return Trace(name=path.name, ranks=() if result.rank is None else (result.rank,))
    from torchgauge.traces.rank_files import cores, read_ranks

    workers = min(workers or cores(), len(files))
    with showing(progress) as display:
        display.start("reading traces")
        results = read_ranks(
            list(map(str, files)),
            python=python,
            partial=partial,
            cache=cache,
            memory_limit=memory_limit and memory_limit // workers,
            workers=workers,
            progress=display,
        )
    return _job_trace(path.name, results)


def compare_traces(
    baseline: Trace | str | Path, current: Trace | str | Path, *, rank: int | None = None
) -> TraceDiff:
    """Compare two traces, or the files or folders that hold them: `rank` of both, else the first.

    Raises InputError `rank-unknown`, and what `read_trace` raises.
    """
    from torchgauge.analyze.trace.trace_compare import compare_traces as compared

    sides = [
        side if not isinstance(side, str | Path) else _loaded(side) for side in (baseline, current)
    ]
    current_numbers = {trace.rank for trace in sides[1].ranks}
    common = [trace.rank for trace in sides[0].ranks if trace.rank in current_numbers]
    number = rank if rank is not None or not common else common[0]
    ranks = [_rank(side, number if rank is not None or common else None) for side in sides]
    return compared(ranks[0], ranks[1], (sides[0].name, sides[1].name))


def _loaded(path: str | Path) -> Trace:
    from torchgauge.api.contents import content
    from torchgauge.records import codec
    from torchgauge.records.trace.trace import Trace

    if content(Path(path)) != "record":
        return read_trace(path)
    record = codec.load(Path(path))
    if isinstance(record, Trace):
        return record
    raise InputError(
        f"'{path}' holds a {type(record).__name__.lower()}, not a trace.",
        id="not-a-trace",
        remedy="Compare traces with traces, and runs with runs.",
    )


def _rank(trace: Trace, number: int | None) -> RankTrace:
    if number is None:
        return trace.ranks[0]
    for rank_trace in trace.ranks:
        if rank_trace.rank == number:
            return rank_trace
    raise rank_unknown(trace.name, [rank_trace.rank for rank_trace in trace.ranks], number)


def rank_unknown(name: str, known_ranks: Sequence[int | None], number: int | None) -> InputError:
    """Return the error that a trace has no such rank."""
    return InputError(
        f"There is no trace of rank {number} in {name}.",
        id="rank-unknown",
        cause=f"There are those of {', '.join(map(str, known_ranks))}.",
        remedy="Choose one of these.",
    )


def ranked(path: Path) -> dict[int, Path] | None:
    """Return the files of a folder or an archive by the ranks that `read_trace` gives them.

    Ranks are read from how each begins. None of a single file.
    """
    from torchgauge.readers.kineto.raw_events import ranks_before
    from torchgauge.traces.trace_files import trace_files

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
    rank_files = {
        number: file for number, file in zip(numbers, traces, strict=True) if number is not None
    }
    return dict(sorted(rank_files.items()))


def _job_trace(name: str, results: Sequence[RankResult]) -> Trace:
    """Return the trace of a job; raise the first error where no file could be read."""
    from torchgauge.analyze.trace.job import job
    from torchgauge.analyze.trace.job_findings import job_findings
    from torchgauge.records.trace.trace import Trace

    readable = [result for result in results if result.rank is not None]
    if not readable:
        raise next(result.error for result in results if result.error is not None)
    warnings = [_unread_warning(result.error) for result in results if result.error is not None]
    by_rank: dict[int, RankResult] = {}
    world = max((result.rank.world or 0 for result in readable if result.rank), default=0)
    files = [
        (result.rank.rank if result.rank else None, Path(result.file).name) for result in readable
    ]
    for number, result in zip(_numbers(files, world), readable, strict=True):
        assert result.rank is not None  # noqa: S101 - only readable files are numbered
        if number is None:
            warnings.append(_without_rank_warning(result.file))
            continue
        if number in by_rank:
            warnings.append(_duplicate_rank_warning(number, by_rank[number].file))
        by_rank[number] = result._replace(rank=msgspec.structs.replace(result.rank, rank=number))
    ranks = {
        number: result.rank for number, result in sorted(by_rank.items()) if result.rank is not None
    }
    world = max((rank.world or 0 for rank in ranks.values()), default=0)
    trace = Trace(
        name=name,
        ranks=tuple(ranks.values()),
        missing=tuple(sorted(set(range(world)) - set(ranks))),
        warnings=tuple(warnings),
    )
    if len(ranks) > 1:
        calls = {number: result.calls for number, result in by_rank.items()}
        job_record, job_ranks = job(ranks, calls)
        trace = msgspec.structs.replace(trace, ranks=tuple(job_ranks), job=job_record)
    return msgspec.structs.replace(trace, findings=job_findings(trace))


def _numbers(files: Sequence[tuple[int | None, str]], world: int) -> list[int | None]:
    """Return each file's rank: as it says it, else as its name does, else its place.

    None where the place is another's or there is none: the front end of vLLM writes a file beside
    those of its ranks.
    """
    recorded_ranks = [_recorded_rank(number, name) for number, name in files]
    return [
        number
        if number is not None or place in recorded_ranks or (world and place >= world)
        else place
        for place, number in enumerate(recorded_ranks)
    ]


def _recorded_rank(number: int | None, name: str) -> int | None:
    if number is not None:
        return number
    named = _NUMBER.search(name)
    return int(named[1]) if named and int(named[1]) < MOST_RANKS else None


def _unread_warning(error: TorchgaugeError) -> MeasurementWarning:
    """Return the warning about a file that was not read: JSON of another kind is no failure."""
    warning = MeasurementWarning.from_error(error, "trace")
    if error.id != _OTHER:
        return warning
    remedy = "Leave it where it is a configuration or a result; else record it again."
    return msgspec.structs.replace(warning, probe="", failed=False, remedy=remedy)


def _without_rank_warning(file: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="trace-no-rank",
        message=f"{Path(file).name} says of no rank that it is its file, and is left out.",
        cause="The other files are of all ranks that its place among them could mean.",
        remedy="Read it alone, or put its rank into its name (rank0).",
    )


def _duplicate_rank_warning(number: int, file: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="trace-rank-twice",
        message=f"Two files are of rank {number}: {Path(file).name} is left out.",
        cause="The folder holds more than one recording.",
        remedy="Keep the files of one recording in a folder of their own.",
    )
