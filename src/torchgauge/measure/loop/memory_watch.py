"""Look from a thread how near the process is to the memory limit at which the kernel kills it."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from torchgauge.device.process_counters import MemoryRoom
from torchgauge.signals import restoring

NEAR = 0.9  # of a limit
FASTEST = 4e9  # bytes/s: a program's memory seldom grows faster
PAUSE = 5.0  # seconds
JOIN = 2.0  # seconds, should what `near` does never end
SHORTEST, LONGEST = 0.02, 0.5  # seconds between two looks


class MemoryWatch:
    """Calls `near` where 90 % of a limit are in use, then halfway between that use and the limit.

    It looks again after the time in which memory could have grown so far: 50 times a second near
    a limit, twice a second far from it. A loop that begins above 90 % has its first mark halfway.
    """

    def __init__(
        self, rooms: Sequence[MemoryRoom], near: Callable[[MemoryRoom, int], object]
    ) -> None:
        self._near = near
        self._stop = threading.Event()
        self._kills = {room: room.kills() for room in rooms}
        self._marks = {
            room: round(room.limit * NEAR) if used < room.limit * NEAR else (used + room.limit) // 2
            for room in rooms
            if (used := room.used()) is not None
        }

    @restoring
    def watching(self) -> Iterator[None]:
        """Look until the block ends."""
        thread = threading.Thread(target=self._run, name="torchgauge-memory", daemon=True)
        if self._marks:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            if self._marks:
                thread.join(JOIN)

    def look(self) -> float:
        """Look once and return the seconds until the next time."""
        pause = LONGEST
        for room, mark in self._marks.items():
            used = room.used()
            if used is None:
                continue
            if used >= mark:
                self._marks[room] = (used + room.limit) // 2
                with _paused_threads():
                    self._near(room, used)
            pause = min(pause, (self._marks[room] - used) / FASTEST)
        return max(pause, SHORTEST)

    def kills(self) -> int:
        """Return how many processes were killed meanwhile, by the limit with most of them."""
        return max((room.kills() - before for room, before in self._kills.items()), default=0)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            pause = self.look()


@contextlib.contextmanager
def _paused_threads() -> Iterator[None]:
    """Keep other threads from running Python, as far as the block does not wait for anything.

    The program would allocate more meanwhile, and be killed before its state is written.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(PAUSE)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
