"""The windows that monitors keep in a history, as they come."""

from __future__ import annotations

import time
from collections.abc import Callable

from torchgauge.history.windows import PROCESS, read_windows, series_spans
from torchgauge.live.history_reader import HistoryReader
from torchgauge.records.monitoring.window import Window, merged

BEFORE = 2 * 3600.0  # seconds of windows that are shown at first
LATE = 20.0  # seconds after which the windows of all processes are there


class StoredWindows:
    """Returns at each call the windows since the last one, those of all processes as one."""

    def __init__(self, reader: HistoryReader, now: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._now = now
        self._since = now() - BEFORE

    def has_any(self) -> bool:
        """Tell whether the history has windows at all."""
        return bool(self._reader.read(series_spans))

    def __call__(self) -> list[Window]:
        """Return the windows, oldest first. Raises StoreError, RecordError."""
        until = self._now() - LATE
        windows = self._reader.read(
            lambda store: read_windows(store, since=self._since, until=until)
        )
        self._since = until
        by_end: dict[float, list[Window]] = {}
        for window in windows:
            by_end.setdefault(window.end, []).append(window.without(PROCESS))
        return [window for end in sorted(by_end) for window in merged(by_end[end])]
