"""A recorded trace, of one process or of all ranks of a job, read from its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.progress import Progress
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.traces.rank_file import RankResult, read_rank
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import (
    OTHER_JSON,
    files_by_rank,
    rank_numbers,
    rank_unknown,
    trace_files,
)

EXPOSED = "exposed-communication"  # whose cause is known with the other ranks


def read(path: Path, options: ReadOptions, progress: Progress, rank: int | None = None) -> Trace:
    """Read a trace, or those of a folder or an archive; raises as `read_trace`.

    Of several files all are read, or only that of `rank`.
    """
    part, files = options.part, trace_files(path)
    if files is None:
        return _single(path.name, read_rank(str(path), options, progress).rank)
    if rank is not None:
        return _single(path.name, _read_rank_alone(path, rank, options, progress))
    if part.begin is not None or part.end is not None:
        raise InputError(
            "A range of time needs one rank.",
            id="option-conflict",
            cause="The windows of ranks begin at different times.",
            remedy="Choose one with --rank (rank=), or a step of all with --step (step=).",
        )
    from torchgauge.traces.rank_files import read_ranks  # a single trace needs none of it

    progress.start("reading traces")
    return job_trace(path.name, read_ranks(list(map(str, files)), options, progress))


def _single(name: str, rank: RankTrace | None) -> Trace:
    return Trace(name=name, ranks=() if rank is None else (rank,))


def _read_rank_alone(
    path: Path, number: int, options: ReadOptions, progress: Progress
) -> RankTrace | None:
    files = files_by_rank(path) or {}
    if number not in files:
        raise rank_unknown(path.name, [*files], number)
    rank = read_rank(str(files[number]), options, progress).rank
    return None if rank is None else msgspec.structs.replace(rank, rank=number)


def job_trace(name: str, results: Sequence[RankResult]) -> Trace:
    """Return the trace of a job; raise the first error where no file could be read."""
    from torchgauge.analyze.findings.catalogue import findings
    from torchgauge.analyze.ranks.job import job

    readable = [result for result in results if result.rank is not None]
    if not readable:
        raise next(result.error for result in results if result.error is not None)
    warnings = [_unread_warning(result.error) for result in results if result.error is not None]
    by_rank: dict[int, RankResult] = {}
    world = max((result.rank.world or 0 for result in readable if result.rank), default=0)
    files = [
        (result.rank.rank if result.rank else None, Path(result.file).name) for result in readable
    ]
    for number, result in zip(rank_numbers(files, world), readable, strict=True):
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
        judged = tuple(
            msgspec.structs.replace(rank, findings=findings(rank))
            if any(finding.id == EXPOSED for finding in rank.findings)
            else rank
            for rank in job_ranks
        )
        trace = msgspec.structs.replace(trace, ranks=judged, job=job_record)
    return msgspec.structs.replace(trace, findings=findings(trace))


def _unread_warning(error: TorchgaugeError) -> MeasurementWarning:
    """Return the warning about a file that was not read: JSON of another kind is not a failure."""
    warning = MeasurementWarning.from_error(error, "trace")
    if error.id != OTHER_JSON:
        return warning
    remedy = "Leave it where it is a configuration or a result; else record it again."
    return msgspec.structs.replace(warning, probe="", failed=False, remedy=remedy)


def _without_rank_warning(file: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="trace-no-rank",
        message=f"{Path(file).name} does not say which rank it is from, and is left out.",
        cause="All ranks that its position could mean have another file.",
        remedy="Read it alone, or put its rank into its name (rank0).",
    )


def _duplicate_rank_warning(number: int, file: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="trace-rank-twice",
        message=f"Two files have rank {number}: {Path(file).name} is left out.",
        cause="The folder holds more than one recording.",
        remedy="Keep the files of one recording in a folder of their own.",
    )
