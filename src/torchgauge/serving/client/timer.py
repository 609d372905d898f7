"""Waking an event loop at a moment: by a timerfd within 0.1 ms, where Linux has one.

asyncio's own timers round up to epoll's milliseconds; a timerfd is a descriptor like any other.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from typing import Protocol

_CLOCK_MONOTONIC, _ABSOLUTE = 1, 1
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
        loop.add_reader(self._descriptor, self._wake)

    def wake_at(self, moment: float) -> None:
        """Call at `moment`; setting it also takes back an expiry that nobody has read."""
        self._armed = True
        nanoseconds = max(int(moment * 1e9) + 1, 1)  # 0 would disarm it
        moment_parts = divmod(nanoseconds, 1_000_000_000)
        self._set(self._descriptor, _ABSOLUTE, _SPECIFICATION.pack(0, 0, *moment_parts), None)

    def close(self) -> None:
        """Remove it from the loop."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _wake(self) -> None:
        self._armed = False
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
