"""The one thread of a process that writes its monitors' files and closes their windows.

A forked process has no such thread, and none of its parent's values: its monitors begin again, in
files of their own, with the first call.
"""

from __future__ import annotations

import contextlib
import multiprocessing.util
import threading
import time
from typing import Protocol

from torchgauge.forks import after_fork_in_child


class Watched(Protocol):
    """A monitor, as the thread sees it; nothing of it raises."""

    @property
    def interval(self) -> float:
        """Seconds between two ticks."""

    def tick(self, now: float) -> None:
        """Write what was recorded, and close the window if it has ended."""

    def after_fork(self) -> None:
        """Forget what was recorded before the fork; called in the child."""

    def flush(self) -> None:
        """Write everything."""

    def close(self) -> None:
        """Write everything, as the process ends."""


class Background:
    """Runs the ticks of all monitors of this process."""

    def __init__(self) -> None:
        self._monitors: list[Watched] = []
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self.running = False

    def add(self, monitor: Watched) -> None:
        """Tick a monitor from now on."""
        with self._lock:
            self._monitors.append(monitor)
        self.start()
        self._wake.set()

    def remove(self, monitor: Watched) -> None:
        """Tick a monitor no longer."""
        with self._lock, contextlib.suppress(ValueError):
            self._monitors.remove(monitor)

    def start(self) -> None:
        """Start the thread if it does not run: in a forked process, with its first call."""
        with self._lock:
            if self.running:
                return
            self.running = True
            # Of multiprocessing, since its forked processes end without what atexit would run.
            multiprocessing.util.Finalize(None, self._end, exitpriority=100)
            threading.Thread(target=self._run, name="torchgauge-monitor", daemon=True).start()

    def _run(self) -> None:
        while True:
            monitors, begin = list(self._monitors), time.monotonic()
            for monitor in monitors:
                monitor.tick(time.time())
            interval = min((monitor.interval for monitor in monitors), default=60.0)
            if self._wake.wait(pause(interval, time.monotonic() - begin)):
                self._wake.clear()

    def flush(self) -> None:
        """Write everything, since the process may end without a further word."""
        for monitor in list(self._monitors):
            monitor.flush()

    def _end(self) -> None:
        for monitor in list(self._monitors):
            monitor.close()

    def after_fork(self) -> None:
        """Begin again, without the thread, which a forked process does not have."""
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self.running = False
        for monitor in self._monitors:
            monitor.after_fork()


def pause(interval: float, tick_time: float) -> float:
    """Return the seconds between the end of a tick of `tick_time` and the next one.

    The next one has written before the interval is over, if it takes no longer than a tenth of it;
    a slow disk is written to half of the time at most.
    """
    return max(0.9 * interval - tick_time, tick_time)


background = Background()
after_fork_in_child(background.after_fork)
