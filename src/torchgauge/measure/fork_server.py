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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from torchgauge.errors import MeasurementError
from torchgauge.forks import Owner
from torchgauge.measure.child_end import ChildEnd
from torchgauge.signals import HeldBack, restoring
from torchgauge.temporary import TemporaryFolder

CHILD = Path(__file__).with_name("child.py")
# How long a child may go on after an interrupt, for the call that is running.
PATIENCE = 5.0
# A server forks at once, even on a machine that is very busy.
HANGS = 60.0
# Packages that a server imports besides torch, and what names their targets: their import builds
# nothing and starts no thread.
IMPORTED_AHEAD = {"torchvision": "torchvision:", "timm": "timm:", "transformers": "hf:"}


@restoring
def forking(spec: str = "") -> Iterator[ForkServer | None]:
    """Yield a new server, which is gone after the block; None where none can be had.

    What the target `spec` is made of is imported ahead, and what this process has already.
    """
    server = None
    if supported():
        ahead = [
            name
            for name, prefix in IMPORTED_AHEAD.items()
            if spec.startswith(prefix) or name in sys.modules
        ]
        with contextlib.suppress(OSError):
            server = ForkServer(ahead)
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

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._place = TemporaryFolder()
        self.folder = self._place.path
        self._unread = b""
        self._lock = threading.Lock()
        self._owner = Owner()
        try:
            self._process = self._start(modules)
        except OSError:
            self._place.remove()
            raise

    def _start(self, modules: Sequence[str]) -> subprocess.Popen[bytes]:
        place = {"path": list(sys.path), "folder": str(Path.cwd()), "modules": list(modules)}
        self.folder.joinpath("request").write_bytes(pickle.dumps(place))
        command = [sys.executable, "-P", str(CHILD), str(self.folder), str(os.getpid()), "fork"]
        with self.folder.joinpath("stderr").open("wb") as stderr:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )

    def ready(self, limit: float) -> bool:
        """Wait until the server has imported what it imports, `limit` seconds at most."""
        try:
            return self._line(limit) == b"ready"
        except (TimeoutError, MeasurementError):
            return False

    def run(self, folder: Path, limit: float) -> ChildEnd:
        """Fork a process that measures what `folder`/request says, and wait for its end.

        It is killed after `limit` seconds, and interrupted by Ctrl-C. Raises MeasurementError
        `child-failed` where the server died.
        """
        self._ask(str(folder))
        child = int(self._soon())
        late = interrupted = False
        try:
            line = self._line(limit)
        except TimeoutError:
            late = True
            line = self._killed(child)
        except KeyboardInterrupt:
            interrupted = True
            _signal(child, signal.SIGINT)
            try:
                line = self._line(PATIENCE)
            except (TimeoutError, KeyboardInterrupt):
                line = self._killed(child)
        return ChildEnd(int(line), late, interrupted)

    def close(self) -> None:
        """End the server and what it has forked, and remove its folder."""
        if self._owner.elsewhere:
            return
        with HeldBack(), self._lock:
            self._process.kill()  # the kernel then ends its children: see `child.end_with`
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    _open(pipe).close()
            self._place.remove()

    def _killed(self, child: int) -> bytes:
        _signal(child, signal.SIGKILL)
        return self._soon()

    def _soon(self) -> bytes:
        """Return the next line of a server that has nothing to wait for."""
        try:
            return self._line(HANGS)
        except TimeoutError as error:
            raise _server_died("It gave no answer.") from error

    def _ask(self, text: str) -> None:
        with contextlib.suppress(OSError):  # it has ended: reading says so
            _open(self._process.stdin).write(text.encode() + b"\n")
            _open(self._process.stdin).flush()

    def _line(self, limit: float) -> bytes:
        """Return the server's next line; raises TimeoutError, MeasurementError `child-failed`."""
        end = time.monotonic() + limit
        pipe = _open(self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError
                data = os.read(pipe.fileno(), 4096)
                if not data:
                    raise _server_died(f"Exit code {self._process.wait()}.")
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _signal(child: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - both were asked for
    return pipe


def _server_died(cause: str) -> MeasurementError:
    return MeasurementError(
        "The process that measuring processes are forked from is of no use any more.",
        id="child-failed",
        cause=cause,
        remedy="Measure with --processes 1, or in freshly started processes with --processes 5.",
    )
