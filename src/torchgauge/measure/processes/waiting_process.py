"""A fresh process that has loaded a build, sleeps, and measures each time it is asked."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from torchgauge.errors import InputError, MeasurementError, TorchgaugeError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.fork_server import ForkedProcess, ForkServer
from torchgauge.measure.processes.processes import (
    CHILD,
    PATIENCE,
    START_LIMIT,
    died,
    tail,
    timed_out,
    write_request,
)
from torchgauge.records.finding import Failure
from torchgauge.records.target import TargetDescription
from torchgauge.signals import HeldBack
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.source import Source
from torchgauge.workers import open_pipe, worker

# Looking whether a silent child still lives costs some microseconds.
LOOK = 1.0
SLOWER = 20.0
# Beside much other work a visit of tenths of a second may take a minute.
ASK_LIMIT = 300.0


class Build(NamedTuple):
    """One side of a comparison: its target, how it is run, where its code lives, its name.

    `spec` is the target as the user wrote it, which a work tree's path must not hide. `variables`
    are added to the environment of its processes.
    """

    source: Source
    options: LatencyOptions
    home: Home | None = None
    label: str = "current"
    spec: str = ""
    variables: Mapping[str, str] = MappingProxyType({})


class Question(msgspec.Struct, frozen=True):
    """Time at least this many seconds and calls.

    With `layers` also every layer by itself; with `cpu` further calls, half as long, by CPU time.
    """

    seconds: float
    calls: int
    layers: bool = False
    cpu: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What a waiting process says, first that it is ready: `step` is then a warm call's seconds.

    `figures` are timing metrics by name in SI units, and the seconds of the "fastest" call;
    `layers` own seconds by path, `fastest` the least of each that add up to a call, if any do.
    """

    step: float = 0.0
    target: TargetDescription | None = None
    threads: int = 0
    torch: str = ""
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    layers: dict[str, float] = msgspec.field(default_factory=dict)
    fastest: dict[str, float] = msgspec.field(default_factory=dict)
    failure: Failure | None = None


class Waiting:
    """One such process: `ready` waits until it has loaded, `ask` puts a question.

    Neither waits longer than until `end`, of `time.monotonic`.
    Both raise what the process itself ran into, named by the build; MeasurementError
    `child-killed`, `child-timeout`, `child-failed`.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes] | ForkedProcess,
        label: str,
        stderr: Path,
        end: float = math.inf,
    ) -> None:
        self._child = child
        self._end = end
        self._label = label
        self._stderr = stderr
        self._read = b""
        self._first: Answer | None = None

    def ready(self, limit: float = START_LIMIT) -> Answer:
        """Return the process's first answer, once it has loaded and warmed up."""
        if self._first is None:
            self._first = self._answer(limit)
        return self._first

    def ask(self, question: Question) -> Answer:
        """Return the process's answer; the others sleep meanwhile."""
        limit = ASK_LIMIT + SLOWER * (question.seconds + question.calls * self.ready().step)
        try:
            open_pipe(self._child.stdin).write(msgspec.json.encode(question) + b"\n")
            open_pipe(self._child.stdin).flush()
        except OSError:
            pass  # it has ended: reading says how
        return self._answer(limit)

    def _answer(self, limit: float) -> Answer:
        try:
            answer = msgspec.json.decode(self._line(limit), type=Answer)
        except msgspec.MsgspecError as error:
            raise named(died(0, f"Its answer cannot be read: {error}"), self._label) from error
        except TorchgaugeError as error:
            raise named(error, self._label) from error.__cause__
        if answer.failure is not None:
            raise named(answer.failure.error(), self._label)
        return answer

    def _line(self, limit: float) -> bytes:
        began = time.monotonic()
        end = min(began + limit, self._end)
        pipe = open_pipe(self._child.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if selector.select(max(0.0, min(LOOK, end - time.monotonic()))):
                    data = os.read(pipe.fileno(), 65536)
                    if not data:
                        raise self._ended()
                    self._read += data
                elif self._child.poll() is not None:
                    raise self._ended()  # a process of its own may still hold the pipe
                elif time.monotonic() > end:
                    raise timed_out(end - began)
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _ended(self) -> MeasurementError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(PATIENCE)
        self._child.kill()
        return died(self._child.wait(), tail(self._stderr))


def named(error: TorchgaugeError, label: str) -> TorchgaugeError:
    """Return the error with the name of the build that ran into it."""
    renamed = type(error)(
        f"The {label} build: {error.message}", id=error.id, cause=error.cause, remedy=error.remedy
    )
    renamed.traceback = error.traceback
    renamed.__cause__ = error.__cause__
    return renamed


def not_timed() -> InputError:
    """Return the error that builds compute nothing."""
    return InputError(
        "Builds on the meta device cannot be timed.",
        id="meta-model",
        cause="Its tensors have shapes and no values.",
        remedy="Give --device cpu or cuda.",
    )


@contextlib.contextmanager
def waiting(
    build: Build, folder: Path, end: float = math.inf, server: ForkServer | None = None
) -> Iterator[Waiting]:
    """Start a process for a build in a new `folder`, or have `server` fork it.

    It is gone after the block, and waited for until `end`, of `time.monotonic`.

    Raises InputError `not-picklable`; OSError where the folder cannot be written; MeasurementError
    `child-failed` where the server died.
    """
    folder.mkdir()
    write_request(folder / "request", (build.source, build.options, None), build.home)
    if server is not None:
        forked = server.start(folder)
        try:
            yield Waiting(forked, build.label, folder / "stderr", end)
        finally:
            with HeldBack():
                forked.close()
        return
    with (
        (folder / "stderr").open("wb") as stderr,
        worker(
            *(CHILD, str(folder), str(os.getpid()), "wait"),
            variables=build.variables,
            stderr=stderr,
        ) as child,
    ):
        yield Waiting(child, build.label, folder / "stderr", end)
