"""Wake an event loop within 0.1 ms: asyncio's own timers are 1 ms late."""

import asyncio
import ctypes
import heapq
import itertools
import os
import time

TFD_NONBLOCK, CLOCK_MONOTONIC, TFD_TIMER_ABSTIME = os.O_NONBLOCK, 1, 1


class _TimerSpec(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_long)
        for name in ("interval_seconds", "interval_nanoseconds", "seconds", "nanoseconds")
    ]


class PreciseTimer:
    """Callbacks at times of `time.monotonic`, through one timerfd."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.due: list = []
        self.numbers = itertools.count()
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self.libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)
        self.loop.add_reader(self.descriptor, self._wake)

    def at(self, moment: float, callback) -> None:
        """Call `callback` at a moment, after those that were registered for the same one."""
        heapq.heappush(self.due, (moment, next(self.numbers), callback))
        if self.due[0][0] == moment:
            self._arm()

    async def until(self, moment: float) -> None:
        """Return at a moment."""
        reached = self.loop.create_future()
        self.at(moment, lambda: reached.done() or reached.set_result(None))
        await reached

    def _arm(self) -> None:
        moment = max(self.due[0][0], time.monotonic() + 1e-6)
        spec = _TimerSpec(0, 0, int(moment), int(moment % 1 * 1e9))
        self.libc.timerfd_settime(self.descriptor, TFD_TIMER_ABSTIME, ctypes.byref(spec), None)

    def _wake(self) -> None:
        os.read(self.descriptor, 8)
        while self.due and self.due[0][0] <= time.monotonic():
            heapq.heappop(self.due)[2]()
        if self.due:
            self._arm()
