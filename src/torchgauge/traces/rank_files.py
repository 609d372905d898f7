"""The files of several ranks, read by a few processes at once.

A process reads one file after the other. What a file does to the process that reads it (it ends, it
runs out of memory) costs that file alone: another process takes its place.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec

from torchgauge.errors import MeasurementError
from torchgauge.progress import Progress
from torchgauge.traces.rank_answer import HEADER, decoded
from torchgauge.traces.rank_file import RankResult
from torchgauge.traces.read_options import ReadOptions
from torchgauge.workers import end_worker, start_worker

CHILD = Path(__file__).with_name("trace_child.py")


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
        self._setup: dict[str, object] = {"options": dataclasses.asdict(options), "path": sys.path}
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
            reader = self._idle.pop() if self._idle else _Reader(self._setup)
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

    def __init__(self, setup: dict[str, object]) -> None:
        self.files_read = 0
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self._process = start_worker(CHILD, stderr=self._errors)
        self._first = json.dumps(setup).encode() + b"\n"

    def ask(self, file: str) -> tuple[bytes, bool]:
        """Return the answer, and whether the process reads another file.

        Raises EOFError or OSError where it ended instead.
        """
        questions, answers = _pipe(self._process.stdin), _pipe(self._process.stdout)
        questions.write(self._first + json.dumps(file).encode() + b"\n")
        questions.flush()
        self._first = b""
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
        if isinstance(error, msgspec.MsgspecError):
            return _died(file, 0, str(error))
        code = self._process.wait()
        self._errors.seek(0)
        return _died(file, code, self._errors.read().decode(errors="replace"))

    def kill(self) -> None:
        """Kill it while another thread waits for its answer."""
        self._process.kill()

    def end(self) -> None:
        """End it, and free what it has."""
        end_worker(self._process)
        self._errors.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - `start_worker` makes both
    return pipe


def _died(file: str, code: int, error_output: str) -> MeasurementError:
    text = error_output.strip().splitlines()
    return MeasurementError(
        f"The process that read {file} ended without an answer.",
        id="child-killed" if code < 0 else "child-failed",
        cause=f"Signal {-code}." if code < 0 else (text[-1] if text else f"Exit code {code}."),
        remedy="If memory ran out, read fewer files at once (--workers 1).",
    )


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
