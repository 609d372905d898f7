"""One growing series of this process: values are buffered, then added to its histogram in bulk."""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchgauge.monitoring.caps import LONGEST_TEXT, MOST_KINDS, OTHER, short_text
from torchgauge.monitoring.problems import Problems
from torchgauge.records.monitoring.histogram import HIGHEST, LOWEST, PER_OCTAVE, Histogram
from torchgauge.records.monitoring.window import Window

FULL = 3000  # buffered values, 24 kB
# A value beyond it, or what would take the sum beyond it, is none: readers refuse sums of 1e40.
LARGEST, LARGEST_SUM = 1e30, 1e36
LONGEST_WAIT = 1.0  # seconds for another thread's turn


class Series:
    """The values of one series since the process began, and since the last window was closed.

    Any thread adds; nothing is lost: `array.append`, and cutting off what was copied, are one step
    each to other threads. The counts of buckets take 8 B each, only between the lowest and the
    highest, 26 kB at most. A value that cannot be, such as a NaN, counts as an event without one.

    Attributes:
        append: Buffers a value in 40 ns; to call `drain_if_full` now and then is the caller's duty.
        fail: Buffers the class or name of a failure; likewise.
        values: What is buffered.
        last: The last value of readings, such as of memory; None of events.
        events: Returns the exact number of events; without it each value and failure is one.
    """

    def __init__(self, window: Window, problems: Problems) -> None:
        """Record what `window` is about, from its begin on."""
        self._window, self._problems = window, problems
        self.events: Callable[[], int] | None = None
        self.last: float | None = None
        self.values = array("d")
        self._failures: list[type | str] = []
        self.append, self.fail = self.values.append, self._failures.append
        self.restart(window.begin)

    def restart(self, begin: float) -> None:
        """Forget everything, as a forked process must: the values are its parent's."""
        self._lock, self._drains = threading.RLock(), False
        del self.values[:], self._failures[:]
        self._begin = begin
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._offset = self._zero_count = self._measured = self._untimed = 0
        self._sum = 0.0
        self._errors = Counter[str]()
        self._ends: tuple[float, float] | None = None
        self._window_ends: tuple[float, float] | None = None
        self._closed = self._state(begin)

    def add(self, value: float) -> None:
        """Add a value in its unit."""
        try:
            self.append(value)
        except OverflowError:  # an integer beyond all floats
            self._untimed += 1
        self.drain_if_full()

    def drain_if_full(self) -> None:
        """Empty a full buffer, unless another thread is about it."""
        if len(self.values) >= FULL and self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def _emptied(self) -> Iterator[None]:
        """Empty the buffer and hold it, after other threads' turns, but not after a second.

        A signal may have interrupted one, and its handler wait for the thread that waits here.
        """
        has_turn = self._lock.acquire(timeout=LONGEST_WAIT)
        try:
            self._drain()
            yield
        finally:
            if has_turn:
                self._lock.release()

    def add_untimed(self) -> None:
        """Count an event whose value is not known."""
        self._untimed += 1  # one step to other threads: it has no call (meter.py)

    def succeeded(self) -> int:
        """Return the number of events that have ended well."""
        with self._emptied():
            return self._events() - self._errors.total()

    def _events(self) -> int:
        ended = self._measured + self._untimed + self._errors.total()
        # Between the counting of a call and its end, a thread may be on its way.
        return ended if self.events is None else max(self.events(), ended)

    def _drain(self) -> None:
        if self._drains:  # a signal interrupted it, whose handler closes the monitor
            return
        self._drains = True
        try:
            self._take()
        finally:
            self._drains = False

    def _take(self) -> None:
        values, failures = self.values[:], self._failures[:]
        # Threads may have appended since: only what was copied is cut off.
        del self.values[: len(values)], self._failures[: len(failures)]
        for failure in failures:
            text = failure.__name__ if isinstance(failure, type) else str(failure)
            kind = short_text(text)
            if kind not in self._errors and len(self._errors) >= MOST_KINDS:
                kind = OTHER
            if kind != text:
                limits = f"A series has {MOST_KINDS} of {LONGEST_TEXT} characters."
                self._problems.once("further kinds of errors", limits)
            self._errors[kind] += 1
        if values:
            self._count(np.frombuffer(values))

    def state(self, now: float) -> Window:
        """Return all values since the process began."""
        with self._emptied():
            return self._state(now)

    def close_window(self, now: float) -> Window:
        """Return the values since the last window, with exact extremes, and begin the next one."""
        with self._emptied():
            state, ends = self._state(now), self._window_ends
            window = state.since(self._closed)
            self._closed, self._window_ends = state, None
        if ends is None:
            return window
        histogram = msgspec.structs.replace(window.histogram, min=ends[0], max=ends[1])
        return msgspec.structs.replace(window, histogram=histogram)

    def _state(self, now: float) -> Window:
        self._begin = min(self._begin, now)  # a clock may be set back
        histogram = Histogram(
            offset=self._offset,
            counts=tuple(self._counts.tolist()),
            zero_count=self._zero_count,
            sum=self._sum,
            min=self._ends and self._ends[0],
            max=self._ends and self._ends[1],
        )
        own = {"begin": self._begin, "end": now, "count": self._events(), "last": self.last}
        return msgspec.structs.replace(
            self._window, **own, histogram=histogram, errors=dict(self._errors)
        )

    def _count(self, values: NDArray[np.float64]) -> None:
        number, ends = len(values), (float(values.min()), float(values.max()))
        if not -LARGEST < ends[0] <= ends[1] < LARGEST:  # of NaN it is false
            possible = values[np.abs(values) < LARGEST]
            number -= len(possible)
            self._untimed += number
            if len(possible):
                self._count(possible)
            return
        total = self._sum + float(values.sum())
        if abs(total) > LARGEST_SUM:
            self._untimed += number
            return
        self._sum = total
        self._measured += number
        self._ends, self._window_ends = _wider(self._ends, ends), _wider(self._window_ends, ends)
        positive = values[values > 0]
        self._zero_count += len(values) - len(positive)
        if not len(positive):
            return
        indices = np.ceil(np.log2(positive) * PER_OCTAVE).astype(np.int64) - 1
        np.clip(indices, LOWEST, HIGHEST, out=indices)
        low, high = int(indices.min()), int(indices.max())
        self._make_room(low, high)
        added = np.bincount(indices - low)
        self._counts[low - self._offset : high + 1 - self._offset] += added

    def _make_room(self, low: int, high: int) -> None:
        if len(self._counts):
            low = min(low, self._offset)
            high = max(high, self._offset + len(self._counts) - 1)
        if (low, high - low + 1) != (self._offset, len(self._counts)):
            counts = np.zeros(high - low + 1, np.int64)
            if len(self._counts):
                start = self._offset - low
                counts[start : start + len(self._counts)] = self._counts
            self._counts, self._offset = counts, low


def _wider(ends: tuple[float, float] | None, added: tuple[float, float]) -> tuple[float, float]:
    return added if ends is None else (min(ends[0], added[0]), max(ends[1], added[1]))
