"""Waking an event loop at a moment: by a timerfd, where Linux has one.

asyncio's own timers round up to epoll's milliseconds; a timerfd is a descriptor like any other. A
process that sleeps needs some 30 to 70 µs to wake: the timer learns how many, wakes it so much
earlier, and spins for what is left.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import struct
import sys
from collections.abc import Callable
from time import monotonic, sleep
from typing import Protocol, runtime_checkable

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1
_MOST_EARLY, _STEP = 60e-6, 1e-6  # seconds; what is learnt at each waking
_SOON = 1e-3  # seconds until a moment that the loop may sleep for, as long as it reads nothing
_SET_SLACK = 29  # of prctl: for how many nanoseconds the kernel may prolong this thread's sleeps
_SPECIFICATION = struct.Struct("@llll")  # interval and moment, each in seconds and nanoseconds


class Timer(Protocol):
    """Calls one function at moments of `time.monotonic`."""

    def wake_at(self, moment: float, *, sleep: bool = False) -> None:
        """Call at `moment`, or at once if it has passed; replaces an earlier moment.

        With `sleep` a `SendingLoop` may read nothing until then, if that is soon.
        """

    def close(self) -> None:
        """Call no longer."""


@runtime_checkable
class SleepingLoop(Protocol):
    """An event loop that sleeps by a timer of ours."""

    def sleep_with(self, timer: TimerDescriptor) -> None:
        """Read nothing while the timer's moment is soon, and call it then."""


def timer(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> Timer:
    """Return the most precise timer of this system that calls `call`."""
    try:
        return TimerDescriptor(loop, call)
    except (OSError, AttributeError):  # not Linux, or no descriptor left
        return LoopTimer(loop, call)


class TimerDescriptor:
    """A timerfd in an event loop. Raises OSError or AttributeError where there is none.

    Attributes:
        soon: The moment that the loop is to sleep until, without the descriptor; infinite for none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("timerfd needs Linux")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_SET_SLACK, 1)
        self._set = libc.timerfd_settime
        self._set.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self._descriptor = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._loop = loop
        self._call = call
        self._armed = False
        self._early = 0.0  # the median of what waking takes
        self._moment = self._expiry = 0.0
        self.soon = math.inf
        self._sleeps = isinstance(loop, SleepingLoop)
        if isinstance(loop, SleepingLoop):
            loop.sleep_with(self)
        loop.add_reader(self._descriptor, self._wake)

    def wake_at(self, moment: float, *, sleep: bool = False) -> None:
        """Call at `moment`; setting it also takes back an expiry that was not read."""
        self._moment = moment
        now = monotonic()
        if sleep and self._sleeps and moment - now < _SOON:
            self.soon = moment
            return
        self.soon = math.inf
        self._armed = True
        expiry = moment - self._early
        self._expiry = expiry if expiry > now else math.inf
        nanoseconds = max(int(expiry * 1e9) + 1, 1)  # 0 would disarm it
        moment_parts = divmod(nanoseconds, 1_000_000_000)
        self._set(self._descriptor, _ABSOLUTE, _SPECIFICATION.pack(0, 0, *moment_parts), None)

    def close(self) -> None:
        """Remove it from the loop."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def sleep(self) -> None:
        """Sleep until shortly before the moment that is soon."""
        expiry = self.soon - self._early
        remaining = expiry - monotonic()
        if remaining > 0:
            sleep(remaining)
            self._learn(monotonic() - expiry)

    def call(self) -> None:
        """Call at the moment that is soon."""
        moment, self.soon = self.soon, math.inf
        while monotonic() < moment:
            pass
        self._call()

    def _learn(self, waking: float) -> None:
        step = _STEP if waking > self._early else -_STEP
        self._early = min(max(self._early + step, 0.0), _MOST_EARLY)

    def _wake(self) -> None:
        self._armed = False
        now = monotonic()
        if self._expiry < now:  # nothing but waking can have taken this long
            self._learn(now - self._expiry)
        while now < self._moment:
            now = monotonic()
        self._call()
        if not self._armed:  # setting a moment takes the expiry back, too
            self._set(self._descriptor, 0, _SPECIFICATION.pack(0, 0, 0, 0), None)


class LoopTimer:
    """The event loop's own timers, which are up to a millisecond late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        self._loop = loop
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def wake_at(self, moment: float, *, sleep: bool = False) -> None:  # noqa: ARG002 - never soon
        """Call at `moment`."""
        self.close()
        self._handle = self._loop.call_at(moment, self._call)

    def close(self) -> None:
        """Cancel the call."""
        if self._handle is not None:
            self._handle.cancel()
