"""A process that has imported torch and run nothing, from which measuring processes are forked.

A fork costs milliseconds where a start of Python and an import of torch cost seconds, and forked
processes spread as freshly started ones do. Nothing has run in the server, so that there is no
thread pool and no CUDA context to inherit. `fork_child` is its other side.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple

from torchgauge.errors import MeasurementError
from torchgauge.folders import working_folder
from torchgauge.forks import Owner
from torchgauge.signals import HeldBack, restoring
from torchgauge.temporary import TemporaryFolder
from torchgauge.workers import end_worker, open_pipe, start_worker

CHILD = Path(__file__).with_name("child.py")
# How long a child may go on after an interrupt, for the call that is running.
PATIENCE = 5.0
READY_LIMIT = 30.0
# A server forks at once, even on a machine that is very busy.
HANGS = 60.0
# Packages that a server imports besides torch, and what names their targets: their import builds
# nothing and starts no thread.
IMPORTED_AHEAD = {"torchvision": "torchvision:", "timm": "timm:", "transformers": "hf:"}


class ChildEnd(NamedTuple):
    """How a measuring process ended.

    Attributes:
        code: Its exit code, negative for a signal.
        late: Whether we killed it after its time.
        interrupted: Whether Ctrl-C ended it.
    """

    code: int
    late: bool = False
    interrupted: bool = False


@restoring
def forking(
    spec: str = "", variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ForkServer | None]:
    """Yield a new server, which is gone after the block; None where none can be started.

    What the target `spec` is made of is imported ahead, and what this process has already.
    `variables` are added to the environment of all that it forks.
    """
    server = None
    if supported():
        ahead = [
            name
            for name, prefix in IMPORTED_AHEAD.items()
            if spec.startswith(prefix) or name in sys.modules
        ]
        with contextlib.suppress(OSError):
            server = ForkServer(ahead, variables)
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def supported() -> bool:
    """Tell whether processes can be forked here: elsewhere than on Linux a fork may hang."""
    return sys.platform == "linux" and hasattr(os, "fork")


class ForkServer:
    """Start it early: it imports while this process loads its model. `close` ends all of it.

    `modules` are imported ahead, where they are installed. Raises OSError where there is no room
    or no process to be had.
    """

    def __init__(
        self, modules: Sequence[str] = (), variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.variables = variables
        self._place = TemporaryFolder()
        self.folder = self._place.path
        self._unread = b""
        self._ready = False
        self._forked: int | None = None
        self._codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._owner = Owner()
        try:
            self._process = self._start(modules)
        except OSError:
            self._place.remove()
            raise

    def _start(self, modules: Sequence[str]) -> subprocess.Popen[bytes]:
        place = {"path": list(sys.path), "folder": str(working_folder()), "modules": list(modules)}
        self.folder.joinpath("request").write_bytes(pickle.dumps(place))
        arguments = (str(self.folder), str(os.getpid()), "fork")
        with self.folder.joinpath("stderr").open("wb") as stderr:
            return start_worker(CHILD, *arguments, variables=self.variables, stderr=stderr)

    def ready(self, limit: float = READY_LIMIT) -> bool:
        """Wait until the server has imported what it imports, `limit` seconds at most."""
        with contextlib.suppress(MeasurementError):
            self._read(lambda: self._ready, limit)
        return self._ready

    def run(self, folder: Path, limit: float) -> ChildEnd:
        """Fork a process that does what `folder`/request says, and wait for its end.

        It is killed after `limit` seconds, and interrupted by Ctrl-C. Raises MeasurementError
        `child-failed` where the server died, KeyboardInterrupt where it died of the same signal.
        """
        child = self._fork(folder, "answer")
        try:
            late = not self._read(lambda: child in self._codes, limit)
        except KeyboardInterrupt:
            return self._interrupted(child)
        return ChildEnd(self.end(child), late)

    def _interrupted(self, child: int) -> ChildEnd:
        _signal(child, signal.SIGINT)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self._read(lambda: child in self._codes, PATIENCE)
            return ChildEnd(self.end(child), late=False, interrupted=True)
        except MeasurementError:  # a cancelled job gets SIGTERM in all its processes
            raise KeyboardInterrupt from None

    def start(self, folder: Path) -> ForkedProcess:
        """Fork a process that waits for questions, beside all others: see `waiting`.

        Raises OSError; MeasurementError `child-failed` where the server died.
        """
        os.mkfifo(folder / "questions", 0o600)
        os.mkfifo(folder / "answers", 0o600)
        with contextlib.ExitStack() as opened:
            # Neither waits for the other side: the first reads as well, the second has no need to.
            questions = os.open(folder / "questions", os.O_RDWR)
            stdin = opened.enter_context(os.fdopen(questions, "r+b", buffering=0))
            answers = os.open(folder / "answers", os.O_RDONLY | os.O_NONBLOCK)
            stdout = opened.enter_context(os.fdopen(answers, "rb", buffering=0))
            process = ForkedProcess(self, self._fork(folder, "wait"), stdin, stdout)
            opened.pop_all()
        return process

    def serves(self, home: object, variables: Mapping[str, str]) -> bool:
        """Tell whether what it forks is as a process that is started there with these variables."""
        return home is None and dict(variables) == dict(self.variables)

    def code(self, child: int, limit: float = 0.0) -> int | None:
        """Return the exit code of a process, None while it runs on after `limit` seconds."""
        self._read(lambda: child in self._codes, limit)
        return self._codes.get(child)

    def end(self, child: int) -> int:
        """Kill a process that has not ended, and return its exit code."""
        if (code := self.code(child)) is None:
            _signal(child, signal.SIGKILL)
            code = self.code(child, HANGS)
        if code is None:
            raise _server_died("It gave no answer.")
        return code

    def close(self) -> None:
        """End the server and what it has forked, and remove its folder."""
        if self._owner.in_fork:
            return
        with HeldBack(), self._lock:
            end_worker(self._process)  # the kernel then ends its children: see `child.end_with`
            self._place.remove()

    def _fork(self, folder: Path, work: str) -> int:
        """Return the number of a new process that does what `folder` says, as `child.main`."""
        self._forked = None
        with contextlib.suppress(OSError):  # it has ended: reading says so
            open_pipe(self._process.stdin).write(f"{work} {folder}\n".encode())
            open_pipe(self._process.stdin).flush()
        if not self._read(lambda: self._forked is not None, HANGS):
            raise _server_died("It gave no answer.")
        assert self._forked is not None  # noqa: S101 - just read
        return self._forked

    def _read(self, until: Callable[[], bool], limit: float) -> bool:
        """Take what the server says until something is so; False after `limit` seconds.

        Raises MeasurementError `child-failed` where the server has ended.
        """
        end = time.monotonic() + limit
        pipe = open_pipe(self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not until():
                if not selector.select(max(0.0, end - time.monotonic())):
                    return False
                data = os.read(pipe.fileno(), 4096)
                if not data:
                    code = self._process.wait()
                    raise _server_died(f"Signal {-code}." if code < 0 else f"Exit code {code}.")
                self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        """Remember what its lines say: see `fork_child`."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            event, *numbers = line.split()
            if event == b"ready":
                self._ready = True
            elif event == b"forked":
                self._forked = int(numbers[0])
            else:
                self._codes[int(numbers[0])] = int(numbers[1])


class ForkedProcess:
    """A process of a server that waits for questions; what is used of `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._server = server
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._server.code(self.pid)

    def wait(self, timeout: float = HANGS) -> int:
        """Return its exit code; raises subprocess.TimeoutExpired while it runs on."""
        code = self._server.code(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return code

    def kill(self) -> None:
        """End it."""
        self._server.end(self.pid)

    def close(self) -> None:
        """Kill it where it has not ended, and close its pipes."""
        try:
            with contextlib.suppress(MeasurementError):  # its server was killed, and it with it
                self.kill()
        finally:
            for pipe in (self.stdin, self.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()


def _signal(child: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _server_died(cause: str) -> MeasurementError:
    return MeasurementError(
        "The process that measuring processes are forked from has failed.",
        id="child-failed",
        cause=cause,
        remedy="Measure with --processes 1, or in freshly started processes with --processes 5.",
    )
