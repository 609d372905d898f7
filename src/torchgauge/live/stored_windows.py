"""The windows that monitors keep in a history, as they come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from torchgauge.analyze.monitoring.burn_rate import LONG
from torchgauge.history.windows import PROCESS, count_windows, read_windows
from torchgauge.live.history_reader import HistoryReader
from torchgauge.records.monitoring.window import Window

BEFORE = 2 * LONG  # seconds of windows that are shown at first
LATE = 20.0  # seconds after which the windows of all processes are there, as a rule
LOOK_BACK = 60.0  # seconds between two looks for those that come later


class StoredWindows:
    """Returns at each call the windows since the last one, those that came late with them.

    They come late after a time without the history, or from a host whose clock is behind.
    """

    def __init__(self, reader: HistoryReader, now: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._now = now
        self._since = now() - BEFORE
        self._turn = 0.0
        self._ends: dict[tuple[Any, ...], float] = {}

    def has_any(self) -> bool:
        """Tell whether the history has windows at all."""
        return self._reader.read(lambda store: count_windows(store, math.inf)) > 0

    def __call__(self) -> list[Window]:
        """Return the windows, oldest first. Raises StoreError, RecordError."""
        until, since = self._now() - LATE, self._since
        turn = until // LOOK_BACK
        if turn != self._turn:  # alerts look at what ended within that time
            since = min(since, until - LONG)
            self._ends = {key: end for key, end in self._ends.items() if end > since}
        windows = self._reader.read(
            lambda store: read_windows(store, since=since, until=until, read_before=self._ends)
        )
        self._since, self._turn = until, turn
        return [window.without(PROCESS) for window in windows]
