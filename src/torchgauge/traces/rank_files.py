"""The files of several ranks, read by a few processes at once.

A process reads one file after the other. What a file does to the process that reads it (it ends, it
runs out of memory) costs that file alone: another process takes its place.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec

from torchgauge.analyze.trace.trace_compare import compare_traces
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, option_conflict
from torchgauge.progress import Progress, showing
from torchgauge.readers.tables import content
from torchgauge.records import codec
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.records.trace.trace_diff import TraceDiff
from torchgauge.traces.rank_file import HEADER, RankResult, decoded, read_rank
from torchgauge.traces.read_options import ReadOptions
from torchgauge.traces.trace_files import (
    OTHER_JSON,
    files_by_rank,
    rank_numbers,
    rank_unknown,
    trace_files,
)
from torchgauge.workers import calling, end_worker, open_pipe, start_worker

SERVE = "torchgauge.traces.rank_file:serve"


def read_ranks(files: Sequence[str], options: ReadOptions, progress: Progress) -> list[RankResult]:
    """Read each file in another process, several at once; results hold what is wrong."""
    done: list[RankResult] = []
    workers = min(options.workers or cores(), len(files))
    if options.memory_limit is not None:
        options = dataclasses.replace(options, memory_limit=options.memory_limit // workers)
    options = dataclasses.replace(options, timeline_bytes=options.timeline_bytes // len(files))
    readers = _Readers(options)
    with ThreadPoolExecutor(workers) as pool:
        try:
            for result in pool.map(readers.read, files):
                done.append(result)
                progress.update(Path(result.file).name, len(done) / len(files))
        finally:  # Ctrl-C as well must leave no child running
            readers.stop()
    return done


class _Readers:
    """The processes that read; as many as threads that ask at once."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._idle: list[_Reader] = []
        self._running: set[_Reader] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """End all processes, and start no other."""
        with self._lock:
            self._is_stopped = True
            for reader in self._running:
                reader.kill()
            for reader in self._idle:
                reader.end()

    def read(self, file: str) -> RankResult:
        """Read one file, in a process that read others before if one is free."""
        with self._lock:
            if self._is_stopped:
                return RankResult(file)
            reader = self._idle.pop() if self._idle else _Reader(self._options)
            self._running.add(reader)
        is_alive = False
        try:
            data, is_alive = reader.ask(file)
            return decoded(file, data)
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            is_alive = False
            failure = reader.died(file, error)
        finally:
            with self._lock:
                self._running.discard(reader)
                if is_alive and not self._is_stopped:
                    self._idle.append(reader)
            if not is_alive or self._is_stopped:
                reader.end()
        if reader.files_read:  # the cause may be a file that it read before
            return self.read(file)
        return RankResult(file, error=failure)


class _Reader:
    """A process that reads one file after the other."""

    def __init__(self, options: ReadOptions) -> None:
        self.files_read = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self._process = start_worker(*calling(SERVE), stderr=self._errors)
        self._options = dataclasses.asdict(options)

    def ask(self, file: str) -> tuple[bytes, bool]:
        """Return the answer, and whether the process reads another file.

        Raises EOFError or OSError where it ended instead.
        """
        questions, answers = open_pipe(self._process.stdin), open_pipe(self._process.stdout)
        questions.write(json.dumps([file, self._options]).encode() + b"\n")
        questions.flush()
        header = answers.read(HEADER.size)
        if len(header) < HEADER.size:
            raise EOFError
        size, goes_on = HEADER.unpack(header)
        data = answers.read(size)
        if len(data) < size:
            raise EOFError
        self.files_read += 1
        return data, goes_on

    def died(self, file: str, error: Exception) -> MeasurementError:
        """Return the error that it ended without an answer about the file."""
        code, text = 0, str(error)
        if not isinstance(error, msgspec.MsgspecError):
            code = self._process.wait()
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")
        lines = text.strip().splitlines() or [f"Exit code {code}."]
        return MeasurementError(
            f"The process that read {file} ended without an answer.",
            id="child-killed" if code < 0 else "child-failed",
            cause=f"Signal {-code}." if code < 0 else lines[-1],
            remedy="If memory ran out, read fewer files at once (--workers 1).",
        )

    def kill(self) -> None:
        """Kill it while another thread waits for its answer."""
        self._process.kill()

    def end(self) -> None:
        """End it, and free what it has."""
        end_worker(self._process)
        self._errors.close()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        raise option_conflict(
            "A range of time needs one rank.",
            "Choose one with --rank (rank=), or a step of all with --step (step=).",
            cause="The windows of ranks begin at different times.",
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


def compared(
    baseline: Trace | str | Path,
    current: Trace | str | Path,
    rank: int | None,
    timeline_bytes: int = 0,
) -> TraceDiff:
    """Compare `rank` of both, else the first that both have, else the first of each.

    Of files the events for the page's timelines are kept, in `timeline_bytes` for each.

    Raises InputError `rank-unknown`, `not-a-trace`, and as `read_trace`.
    """
    sides = [
        side if not isinstance(side, str | Path) else _trace_at(Path(side), timeline_bytes)
        for side in (baseline, current)
    ]
    current_numbers = {trace.rank for trace in sides[1].ranks}
    common = [trace.rank for trace in sides[0].ranks if trace.rank in current_numbers]
    number = rank if rank is not None or not common else common[0]
    ranks = [_rank(side, number if rank is not None or common else None) for side in sides]
    old, new = (side.name for side in sides)
    if old == new:  # the folders tell them apart
        old, new = (
            str(side) if isinstance(side, str | Path) else side.name for side in (baseline, current)
        )
    return compare_traces(ranks[0], ranks[1], (old, new))


def _trace_at(path: Path, timeline_bytes: int) -> Trace:
    if content(path) != "record":
        with showing(None) as display:
            return read(path, ReadOptions(timeline_bytes=timeline_bytes), display)
    record = codec.load(path)
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
