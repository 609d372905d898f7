"""Closed windows on their way to one receiver, by a thread of its own: a dead one holds up none."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from torchgauge.errors import MeasurementError
from torchgauge.monitoring.problems import Problems
from torchgauge.records.monitoring.window import Window

LAST_WAIT = 5.0  # seconds that the end of a monitor waits for its receivers


class Batch(NamedTuple):
    """The windows of a monitor that ended together.

    Attributes:
        monitor: The monitor's name.
        process: The process, as `ProcessState.identity`.
        windows: One a series, since the last batch.
        totals: The same series since the process began.
    """

    monitor: str
    process: str
    windows: tuple[Window, ...]
    totals: tuple[Window, ...]


class Receiver(Protocol):
    """Where windows go: a history, an OTLP endpoint, a tracker, a function."""

    @property
    def part(self) -> str:
        """Its name in the monitor's status."""

    @property
    def backlog(self) -> int:
        """How many batches wait for it at most while it fails; 1 where a batch has all earlier."""

    def receive(self, batch: Batch) -> None:
        """Take a batch; what it raises is noted, and the batch comes again with the next one."""


class Delivery:
    """Hands batches to a receiver, in order; those that it refuses wait, the oldest give way."""

    def __init__(self, receiver: Receiver, problems: Problems) -> None:
        self._receiver, self._problems = receiver, problems
        self.after_fork()

    def after_fork(self) -> None:
        """Begin again, as a forked process must: what waits is its parent's."""
        self._lock = threading.RLock()
        self._pending: deque[Batch] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False

    def send(self, batch: Batch) -> None:
        """Hand over a batch; returns at once."""
        self._pending.append(batch)
        self._make_room()
        if self._thread is None:
            name = f"torchgauge-monitor-{self._receiver.part}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            with contextlib.suppress(RuntimeError):  # there are too many, or the program ends
                thread.start()
                self._thread = thread
        self._wake.set()

    def _make_room(self) -> None:
        with self._lock:
            while len(self._pending) > self._receiver.backlog:
                self._pending.popleft()
                if self._receiver.backlog > 1:
                    self._lose("oldest windows", "More windows waited than are kept.")

    def end(self) -> None:
        """Hand over what waits, and end; the next batch begins again."""
        self._ended = True
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, for a while at most."""
        if self._thread is None:
            if self._pending:  # as a program ends no thread begins
                self._run()
        elif self._thread is not threading.current_thread():
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._lose("last windows", "They did not get there before the end.")
            else:
                self._thread = None
        self._ended = False

    def _lose(self, windows: str, cause: str) -> None:
        error = MeasurementError(cause, id="windows-lost")
        self._problems.add(f"{windows} for {self._receiver.part}", error)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._problems.noting(self._receiver.part):
                while self._pending:
                    self._deliver()
            if self._ended:
                return

    def _deliver(self) -> None:
        with self._lock:
            batch = self._pending.popleft()
        try:
            self._receiver.receive(batch)
        except BaseException:  # a function may end the thread
            self._pending.appendleft(batch)
            self._make_room()
            raise


class FunctionReceiver:
    """Calls a function with the windows of this process, as alerts do."""

    part = "function"
    backlog = 120

    def __init__(self, function: Callable[[tuple[Window, ...]], object]) -> None:
        self._function = function

    def receive(self, batch: Batch) -> None:
        """Call the function."""
        self._function(batch.windows)
