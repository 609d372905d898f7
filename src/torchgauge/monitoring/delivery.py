"""Closed windows on their way to one receiver, by a thread of its own: a dead one holds up none."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

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
        ...

    @property
    def backlog(self) -> int:
        """How many batches wait for it at most while it fails."""
        ...

    def receive(self, batch: Batch) -> None:
        """Take a batch; what it raises is noted, and the batch comes again with the next one."""
        ...


class Delivery:
    """Hands batches to a receiver, in order; those that it refuses wait, the oldest give way."""

    def __init__(self, receiver: Receiver, problems: Problems) -> None:
        self._receiver, self._problems = receiver, problems
        self.after_fork()

    def after_fork(self) -> None:
        """Begin again, as a forked process must: what waits is its parent's."""
        self._pending: deque[Batch] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False

    def send(self, batch: Batch) -> None:
        """Hand over a batch; returns at once."""
        self._pending.append(batch)
        if len(self._pending) > self._receiver.backlog:
            self._pending.popleft()
        if self._thread is None:
            name = f"torchgauge-monitor-{self._receiver.part}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._wake.set()

    def end(self) -> None:
        """Hand over what waits, and end."""
        self._ended = True
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, for a while at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._problems.noting(self._receiver.part):
                while self._pending:
                    batch = self._pending[0]
                    self._receiver.receive(batch)
                    if self._pending and self._pending[0] is batch:
                        self._pending.popleft()
            if self._ended:
                return


class FunctionReceiver:
    """Calls a function with the windows of this process, as alerts do."""

    part = "function"
    backlog = 120

    def __init__(self, function: Callable[[tuple[Window, ...]], object]) -> None:
        self._function = function

    def receive(self, batch: Batch) -> None:
        """Call the function."""
        self._function(batch.windows)
