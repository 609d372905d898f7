"""The files of several ranks, each read in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from torchgauge.analyze.trace.rank_calls import Calls, Message
from torchgauge.errors import MeasurementError, TorchgaugeError
from torchgauge.progress import Progress
from torchgauge.records.failure import Failure
from torchgauge.records.trace.trace import RankTrace
from torchgauge.temporary import temporary_folder
from torchgauge.traces.rank_file import RankResult, read_rank
from torchgauge.traces.read_options import ReadOptions
from torchgauge.workers import NOWHERE, PIPE, worker

CHILD = Path(__file__).with_name("trace_child.py")


class Answer(msgspec.Struct, frozen=True):
    """`RankResult` as it travels between processes."""

    rank: RankTrace | None = None
    calls: tuple[tuple[Message, tuple[int, ...], tuple[int, ...]], ...] = ()
    failure: Failure | None = None


def read_ranks(files: Sequence[str], options: ReadOptions, progress: Progress) -> list[RankResult]:
    """Read each file in a process of its own, several at once; answers hold what is wrong."""
    done: list[RankResult] = []
    workers = min(options.workers or cores(), len(files))
    if options.memory_limit is not None:
        options = dataclasses.replace(options, memory_limit=options.memory_limit // workers)
    options = dataclasses.replace(options, timeline_bytes=options.timeline_bytes // len(files))
    with temporary_folder() as folder:
        children = _Children(folder, options)
        with ThreadPoolExecutor(workers) as pool:
            try:
                for result in pool.map(children.read, range(len(files)), files):
                    done.append(result)
                    progress.update(Path(result.file).name, len(done) / len(files))
            except BaseException:  # Ctrl-C as well must leave no child running
                children.stop()
                raise
    return done


class _Children:
    """The processes that read, so that all of them can be ended."""

    def __init__(self, folder: Path, options: ReadOptions) -> None:
        self._folder = folder
        self._options = dataclasses.asdict(options)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """End all that run, and start no other."""
        self._is_stopped = True
        for child in tuple(self._running):
            child.kill()

    def read(self, number: int, file: str) -> RankResult:
        """Read one file in a new process."""
        answer = self._folder / str(number)
        request = json.dumps(
            {"options": self._options, "path": sys.path, "file": file, "answer": str(answer)}
        )
        if self._is_stopped:
            return RankResult(file)
        with worker(CHILD, stdout=NOWHERE, stderr=PIPE) as child:
            self._running.add(child)
            try:
                _, error_output = child.communicate(request.encode())
            finally:
                self._running.discard(child)
        if not answer.exists():
            return RankResult(file, error=_died(file, child.returncode, error_output))
        return _decoded(file, answer.read_bytes())


def answered(file: str, options: ReadOptions) -> Answer:
    """Return what a child answers that reads the file so."""
    try:
        result = read_rank(file, options)
    except TorchgaugeError as error:
        return Answer(failure=Failure.from_error(error))
    calls = tuple(
        (message, tuple(begin.tolist()), tuple(end.tolist()))
        for message, (begin, end) in result.calls.by_message.items()
    )
    return Answer(rank=result.rank, calls=calls)


def encoded(answer: Answer) -> bytes:
    """Return the answer as bytes."""
    return msgspec.msgpack.encode(answer)


def _decoded(file: str, data: bytes) -> RankResult:
    try:
        answer = msgspec.msgpack.decode(data, type=Answer)
    except msgspec.MsgspecError as error:
        return RankResult(file, error=_died(file, 0, str(error).encode()))
    if answer.failure is not None:
        return RankResult(file, error=answer.failure.error())
    calls = {
        message: (np.array(begin, np.int64), np.array(end, np.int64))
        for message, begin, end in answer.calls
    }
    return RankResult(file, answer.rank, Calls(calls))


def _died(file: str, code: int, error_output: bytes) -> MeasurementError:
    text = error_output.decode(errors="replace").strip().splitlines()
    return MeasurementError(
        f"The process that read {file} ended without an answer.",
        id="child-killed" if code < 0 else "child-failed",
        cause=f"Signal {-code}." if code < 0 else (text[-1] if text else f"Exit code {code}."),
        remedy="If memory ran out, read fewer files at once (--workers 1).",
    )


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
