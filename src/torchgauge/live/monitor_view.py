"""What the page says about monitors: a row for each live series, and the windows of one."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.history.fleet import key
from torchgauge.records.monitoring.histogram import Histogram, boundary
from torchgauge.records.monitoring.window import Key, Window, merged
from torchgauge.report.page import page_trend
from torchgauge.report.page.page_shorter import short

HELD_WINDOWS = 600  # of each series
CURVE_WINDOWS = 60
MAX_SERIES = 500
MAX_BARS = 72
SILENT_AFTER = 3.0  # times the length of a window, and 10 s at least
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
# How many processes wrote a window is not what a series is about.
_MERGED_LABELS = ("process",)
_NAME_LABEL = "monitor"


class MonitorView:
    """Holds the newest windows of each series that `read` returns, merged over processes."""

    def __init__(
        self,
        folder: str,
        read: Callable[[], Iterable[Window]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._read = read
        self._now = now
        self._lock = threading.Lock()
        self._windows: dict[Key, deque[Window]] = {}
        self._error: TorchgaugeError | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> MonitorView:
        """Return a view of what monitors write to a folder. Raises InputError."""
        raise NotImplementedError

    def update(self) -> None:
        """Take the windows that were closed since; those of one interval are merged."""
        try:
            windows = list(self._read())
        except TorchgaugeError as error:
            self._error = error
            return
        self._error = None
        with self._lock:
            for window in merged(window.without(*_MERGED_LABELS) for window in windows):
                held = self._windows.setdefault(window.key, deque(maxlen=HELD_WINDOWS))
                if not held or window.end > held[-1].end:
                    held.append(window)

    def rows(self) -> dict[str, Any]:
        """Return a row for each series."""
        with self._lock:
            newest = {series: list(held)[-CURVE_WINDOWS:] for series, held in self._windows.items()}
        rows = [self._row(windows) for _, windows in sorted(newest.items())]
        error = self._error
        fields = ("id", "message", "cause", "remedy")
        return {
            "folder": short(self._folder),
            "rows": rows[:MAX_SERIES],
            "error": None if error is None else {name: getattr(error, name) for name in fields},
        }

    def series(self, series_key: str, end: float | None = None) -> dict[str, Any]:
        """Return a series over time, and the window that ended at `end`, by default the newest.

        Raises InputError `live-unknown`.
        """
        with self._lock:
            held = {_series_key(series): list(windows) for series, windows in self._windows.items()}
        windows = held.get(series_key)
        if windows is None:
            raise InputError(
                "There is no such live series.",
                id="live-unknown",
                cause="No process has recorded it since this server started.",
                remedy="Go back to the list.",
            )
        chosen = windows[-1] if end is None else next((w for w in windows if w.end == end), None)
        unit, factor = _page_unit(windows[-1])
        return {
            "key": series_key,
            "name": _name(windows[-1]),
            "labels": [
                [short(label), short(text)]
                for label, text in sorted(windows[-1].labels.items())
                if label != _NAME_LABEL
            ],
            "unit": unit,
            "state": self._state(windows),
            "end": [window.end for window in windows],
            "lines": {
                name: [_scaled(window.histogram.quantile(share), factor) for window in windows]
                for name, share in PERCENTILES.items()
            },
            "rate": [_scaled(window.rate) for window in windows],
            "failed": [window.failed for window in windows],
            "window": None if chosen is None else _distribution(chosen, factor),
        }

    def _row(self, windows: list[Window]) -> dict[str, Any]:
        window = windows[-1]
        unit, factor = _page_unit(window)
        labels = (f"{k} {v}" for k, v in sorted(window.labels.items()) if k != _NAME_LABEL)
        return {
            "key": _series_key(window.key),
            "name": _name(window),
            "labels": short(" · ".join(labels)),
            "unit": unit,
            "end": window.end,
            "age": max(round(self._now() - window.end), 0),
            "rate": _scaled(window.rate),
            "middle": _scaled(window.histogram.quantile(0.5), factor),
            "high": _scaled(window.histogram.quantile(0.99), factor),
            "errors": _scaled(window.error_share),
            "curve": [_scaled(w.histogram.quantile(0.99), factor) for w in windows],
            "state": self._state(windows),
        }

    def _state(self, windows: list[Window]) -> dict[str, Any]:
        window = windows[-1]
        length = window.end - window.begin
        silent = self._now() - window.end > max(SILENT_AFTER * length, 10.0)
        return {"kind": "silent" if silent else "steady", "alerts": []}


def _distribution(window: Window, factor: float) -> dict[str, Any]:
    histogram = window.histogram
    edges, counts = bars(histogram)
    return {
        "begin": window.begin,
        "end": window.end,
        "count": window.count,
        "measured": histogram.count,
        "zero": histogram.zero_count,
        "rate": _scaled(window.rate),
        "mean": _scaled(histogram.mean, factor),
        "min": _scaled(histogram.min, factor),
        "max": _scaled(histogram.max, factor),
        "percentiles": {
            name: _scaled(histogram.quantile(share), factor) for name, share in PERCENTILES.items()
        },
        "errors": [[short(kind), number] for kind, number in sorted(window.errors.items())],
        "edges": [_scaled(edge, factor) for edge in edges],
        "counts": counts,
    }


def bars(histogram: Histogram, limit: int = MAX_BARS) -> tuple[list[float], list[int]]:
    """Return the bounds and the counts of at most `limit` bars, each of equally many buckets."""
    size = max(math.ceil(len(histogram.counts) / limit), 1)
    counts = [
        sum(histogram.counts[begin : begin + size])
        for begin in range(0, len(histogram.counts), size)
    ]
    edges = [boundary(histogram.offset + size * index) for index in range(len(counts) + 1)]
    return (edges, counts) if counts else ([], [])


def _series_key(series: Key) -> str:
    return key(series[0], *(text for label in series[1] for text in label))


def _name(window: Window) -> str:
    return short(" ".join(filter(None, (window.labels.get(_NAME_LABEL), window.series))))


def _page_unit(window: Window) -> tuple[str, float]:
    return page_trend.PAGE_UNITS.get(window.unit, ("count", 1.0))


def _scaled(value: float | None, factor: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * factor:.5g}")
