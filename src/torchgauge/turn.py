"""One measurement at a time in a process: the thread that measures holds the turn, others wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from torchgauge.errors import InputError
from torchgauge.forks import after_fork_in_child
from torchgauge.progress import Progress

REPORT_DELAY = 3.0  # seconds of waiting after which progress says what for
POLL_INTERVAL = 1.0  # seconds between two looks whether the thread that is waited for still lives


class Turn:
    """A hold on the turn, from `take` to `end`; one thread may have several, one in the other.

    They may end in any order and on any thread: the turn is free once all have ended. `timeline` is
    that of a loop, which may last for hours: other threads are refused meanwhile and do not wait.
    """

    def __init__(self, *, timeline: bool = False) -> None:
        self.timeline = timeline
        self.thread: threading.Thread | None = None

    def take(self, progress: Progress | None = None) -> None:
        """Wait until no other thread measures, and hold the turn; Ctrl-C ends the wait.

        Raises InputError `timeline-active` where the other thread has a timeline.
        """
        self.thread = threading.current_thread()
        tell_at = time.monotonic() + REPORT_DELAY
        with _changed:
            while (other := _other_than(self.thread)) is not None:
                if any(hold.timeline for hold in _held):
                    raise _refused(other)
                if progress is not None and time.monotonic() >= tell_at:
                    progress.start(f"waiting for the measurement of thread {other.name}")
                    progress = None
                _changed.wait(POLL_INTERVAL)
            _held.append(self)

    def end(self) -> None:
        """Let go; a second time, and in a process that was forked meanwhile, it does nothing."""
        with _changed:
            if self in _held:
                _held.remove(self)
                _changed.notify_all()


@contextlib.contextmanager
def turn(progress: Progress | None = None) -> Iterator[None]:
    """Hold the process's turn to measure until the block ends. Raises as `Turn.take`."""
    hold = Turn()
    hold.take(progress)
    try:
        yield
    finally:
        hold.end()


_changed = threading.Condition()
_held: list[Turn] = []


def _other_than(thread: threading.Thread) -> threading.Thread | None:
    """Return the other thread that holds the turn; what one held that is gone is let go."""
    _held[:] = [hold for hold in _held if hold.thread is not None and hold.thread.is_alive()]
    return next((hold.thread for hold in _held if hold.thread is not thread), None)


def _refused(other: threading.Thread) -> InputError:
    return InputError(
        "Nothing can be measured while a timeline is active in another thread.",
        id="timeline-active",
        cause=f"Thread {other.name} is within tg.timeline or tg.watch_generation, or under "
        "`torchgauge run script.py`: in a process one thread measures at a time.",
        remedy="Measure before the timeline or after it, or in a process of its own.",
    )


def _forget_in_child() -> None:
    """Free the turn in a forked process: its holder does not measure there."""
    global _changed
    _changed = threading.Condition()
    _held.clear()


after_fork_in_child(_forget_in_child)
