"""The files of several ranks, each read in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from torchgauge.analyze.rank_calls import Calls, Message
from torchgauge.api.rank_file import Read, read_rank
from torchgauge.errors import MeasurementError, TorchgaugeError
from torchgauge.model.failure import Failure
from torchgauge.model.trace import RankTrace
from torchgauge.progress import Progress
from torchgauge.temporary import temporary_folder

CHILD = Path(__file__).with_name("trace_child.py")


class Answer(msgspec.Struct, frozen=True):
    """`Read` as it travels between processes."""

    rank: RankTrace | None = None
    calls: tuple[tuple[Message, tuple[int, ...], tuple[int, ...]], ...] = ()
    failure: Failure | None = None


def read_ranks(
    files: Sequence[str],
    *,
    python: bool,
    partial: bool,
    cache: bool = False,
    memory_limit: int | None = None,
    workers: int,
    progress: Progress,
) -> list[Read]:
    """Read each file in a process of its own, `workers` at once; answers hold what is wrong.

    `memory_limit` is that of each process.
    """
    done: list[Read] = []
    with temporary_folder() as folder:
        how = {"python": python, "partial": partial, "cache": cache, "memory_limit": memory_limit}
        children = _Children(folder, how)
        with ThreadPoolExecutor(workers) as pool:
            try:
                for found in pool.map(children.read, range(len(files)), files):
                    done.append(found)
                    progress.update(Path(found.file).name, len(done) / len(files))
            except BaseException:
                children.stop()
                raise
    return done


class _Children:
    """The processes that read, so that all of them can be ended."""

    def __init__(self, folder: Path, how: dict[str, bool | int | None]) -> None:
        self._folder = folder
        self._how = how
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End all that run, and start no other."""
        self._stopped = True
        for child in tuple(self._running):
            child.kill()

    def read(self, number: int, file: str) -> Read:
        """Read one file in a new process."""
        answer = self._folder / str(number)
        request = json.dumps(
            {"how": self._how, "path": sys.path, "file": file, "answer": str(answer)}
        )
        command = [sys.executable, "-P", str(CHILD)]
        if self._stopped:
            return Read(file)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as child:
            self._running.add(child)
            try:
                _, said = child.communicate(request.encode())
            finally:
                self._running.discard(child)
        if not answer.exists():
            return Read(file, error=_died(file, child.returncode, said))
        return _decoded(file, answer.read_bytes())


def answered(file: str, **how: Any) -> Answer:
    """Return what a child answers that reads the file so."""
    try:
        found = read_rank(file, **how)
    except TorchgaugeError as error:
        return Answer(failure=Failure.of(error))
    calls = tuple(
        (said, tuple(begin.tolist()), tuple(end.tolist()))
        for said, (begin, end) in found.calls.of.items()
    )
    return Answer(rank=found.rank, calls=calls)


def encoded(answer: Answer) -> bytes:
    """Return the answer as bytes."""
    return msgspec.msgpack.encode(answer)


def _decoded(file: str, data: bytes) -> Read:
    try:
        answer = msgspec.msgpack.decode(data, type=Answer)
    except msgspec.MsgspecError as error:
        return Read(file, error=_died(file, 0, str(error).encode()))
    if answer.failure is not None:
        return Read(file, error=answer.failure.error())
    calls = {
        said: (np.array(begin, np.int64), np.array(end, np.int64))
        for said, begin, end in answer.calls
    }
    return Read(file, answer.rank, Calls(calls))


def _died(file: str, code: int, said: bytes) -> MeasurementError:
    text = said.decode(errors="replace").strip().splitlines()
    return MeasurementError(
        f"The process that read {file} ended without an answer.",
        id="child-killed" if code < 0 else "child-failed",
        cause=f"Signal {-code}." if code < 0 else (text[-1] if text else f"Exit code {code}."),
        remedy="If memory ran out, read fewer files at once (--workers 1).",
    )


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
