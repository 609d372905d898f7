"""A recorded trace, of one process or of all ranks of a job, read from its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchgauge.errors import TorchgaugeError
from torchgauge.progress import Progress
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.trace import Trace
from torchgauge.traces.rank_file import RankResult, read_rank
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import OTHER_JSON, rank_numbers, trace_files

EXPOSED = "exposed-communication"  # whose cause is known with the other ranks


def read(path: Path, options: ReadOptions, progress: Progress) -> Trace:
    """Read a trace, or those of a folder or an archive. Raises as `read_trace`."""
    files = trace_files(path)
    if files is None:
        result = read_rank(str(path), options, progress)
        return Trace(name=path.name, ranks=() if result.rank is None else (result.rank,))
    from torchgauge.traces.rank_files import read_ranks  # a single trace needs none of it

    progress.start("reading traces")
    return job_trace(path.name, read_ranks(list(map(str, files)), options, progress))


def job_trace(name: str, results: Sequence[RankResult]) -> Trace:
    """Return the trace of a job; raise the first error where no file could be read."""
    from torchgauge.analyze.findings.catalogue import findings
    from torchgauge.analyze.trace.job import job

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
