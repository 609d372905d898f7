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
from time import monotonic
from typing import Protocol

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1
_MOST_EARLY, _STEP = 60e-6, 1e-6  # seconds; what is learnt at each waking
_SPECIFICATION = struct.Struct("@llll")  # interval and moment, each in seconds and nanoseconds


class Timer(Protocol):
    """Calls one function at moments of `time.monotonic`.

    Attributes:
        kind: "timerfd", or "event loop" where only asyncio's timers are available.
    """

    kind: str

    def wake_at(self, moment: float) -> None:
        """Call at `moment`, or at once if it has passed; replaces an earlier moment."""
        ...

    def close(self) -> None:
        """Call no longer."""
        ...


def timer(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> Timer:
    """Return the most precise timer of this system that calls `call`."""
    try:
        return TimerDescriptor(loop, call)
    except (OSError, AttributeError):  # not Linux, or no descriptor left
        return LoopTimer(loop, call)


class TimerDescriptor:
    """A timerfd in an event loop. Raises OSError or AttributeError where there is none."""

    kind = "timerfd"

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("timerfd needs Linux")
        libc = ctypes.CDLL(None, use_errno=True)
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
        loop.add_reader(self._descriptor, self._wake)

    def wake_at(self, moment: float) -> None:
        """Call at `moment`; setting it also takes back an expiry that was not read."""
        self._armed = True
        self._moment = moment
        expiry = moment - self._early
        self._expiry = expiry if expiry > monotonic() else math.inf
        nanoseconds = max(int(expiry * 1e9) + 1, 1)  # 0 would disarm it
        moment_parts = divmod(nanoseconds, 1_000_000_000)
        self._set(self._descriptor, _ABSOLUTE, _SPECIFICATION.pack(0, 0, *moment_parts), None)

    def close(self) -> None:
        """Remove it from the loop."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _wake(self) -> None:
        self._armed = False
        now = monotonic()
        if self._expiry < now:  # nothing but waking can have taken this long
            step = _STEP if now - self._expiry > self._early else -_STEP
            self._early = min(max(self._early + step, 0.0), _MOST_EARLY)
        while now < self._moment:
            now = monotonic()
        self._call()
        if not self._armed:  # setting a moment takes the expiry back, too
            self._set(self._descriptor, 0, _SPECIFICATION.pack(0, 0, 0, 0), None)


class LoopTimer:
    """The event loop's own timers, which are up to a millisecond late."""

    kind = "event loop"

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        self._loop = loop
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def wake_at(self, moment: float) -> None:
        """Call at `moment`."""
        self.close()
        self._handle = self._loop.call_at(moment, self._call)

    def close(self) -> None:
        """Cancel the call."""
        if self._handle is not None:
            self._handle.cancel()
