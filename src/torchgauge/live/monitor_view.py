"""What the page says about monitors: a row for each live series, and the windows of one."""

from __future__ import annotations

import bisect
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.window_alerts import (
    PREFIX,
    SHORT,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.history.fleet import key
from torchgauge.live.failures import error_fields, expected, failed_state
from torchgauge.live.history_reader import StoredJudgements
from torchgauge.records.monitoring.histogram import Histogram, boundary
from torchgauge.records.monitoring.window import LATENCY, LAYER, REQUEST, Key, Window, merged
from torchgauge.report.page import page_trend
from torchgauge.report.page.page_shorter import short

Kind = Literal["alert", "steady", "unknown", "unruled"]
# Returns the state of a series, unknown where it cannot be judged yet, and its alerts as texts.
Judge = Callable[[Sequence[Window], float], tuple[Kind, list[str]]]
# What is reported where no file of rules is given: errors that burn what 99 % allow.
DEFAULT_RULES = tuple(
    WindowRule(name="objective", kind="objective", series=series) for series in (LATENCY, REQUEST)
)


def judge(
    rules: Sequence[Rule],
    window_rules: Sequence[WindowRule] = DEFAULT_RULES,
    stored: StoredJudgements | None = None,
) -> Judge:
    """Return what holds windows of an hour against rules.

    Objectives and thresholds of windows are judged here; levels and growth, which need days, by
    what a history has. A window of more than five minutes, such as the first look at what ran
    before, is not evidence about now.
    """
    thresholds = [
        rule for rule in rules if rule.kind == "threshold" and rule.metric.startswith(PREFIX)
    ]
    objectives = [rule for rule in window_rules if rule.kind == "objective"]

    def judged(windows: Sequence[Window], now: float) -> tuple[Kind, list[str]]:
        recent = [window for window in windows if window.end - window.begin <= SHORT]
        series = window_series(recent, now) if recent and thresholds else []
        fitting = [rule for rule in objectives if rule.fits(windows[-1])]
        results = [window_alerts(rule, recent, now) for rule in fitting]
        results += [alerts(rule, series) for rule in thresholds if any(map(rule.fits, series))]
        results += [] if stored is None else stored.alerts(windows[-1])
        texts = [f"{alert.rule}: {alert.message}" for result in results for alert in result or []]
        if texts or not results:
            return ("alert" if texts else "unruled"), texts
        return ("unknown" if None in results else "steady"), []

    return judged


LOOK = 5.0  # seconds between two looks, several times the interval of monitors' files
HELD_WINDOWS = 720  # of each series: an hour
CURVE_WINDOWS = 60
MAX_SERIES = 500
MAX_LAYERS = 200
MAX_BARS = 72
SILENT_AFTER = 6 * LOOK
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_NAME_LABEL = "monitor"
UNKNOWN: dict[str, Any] = {"kind": "unknown", "alerts": [], "unjudged": []}


class MonitorView:
    """Holds the newest windows of each series of a monitor folder, from one look to the next.

    The windows that end with a look begin and end with it, so that those of many processes, which
    write at different moments, are one; others take their place among those before, and those that
    ended together are one. The first window of a series is all that it has recorded before.
    `trouble` returns what could not be read at the last look.
    """

    def __init__(
        self,
        folder: str,
        read: Callable[[], Iterable[Window]],
        judge: Judge,
        now: Callable[[], float] = time.time,
        trouble: Callable[[], TorchgaugeError | None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._trouble = trouble
        self._read = read
        self._judge = judge
        self._now = now
        self._lock = threading.Lock()
        self._windows: dict[Key, list[Window]] = {}
        self._states: dict[Key, dict[str, Any]] = {}
        self._last_look = math.inf
        self.error: TorchgaugeError | None = None
        self._updated = time.monotonic()

    def update(self) -> None:
        """Take the windows that were recorded since the last look; an error is shown."""
        try:
            self._look()
            self.error = self._trouble()
        except Exception as error:  # noqa: BLE001 - the next look may succeed
            self.error = expected(error)
        self._updated = time.monotonic()

    def _look(self) -> None:
        windows, now = list(self._read()), self._now()
        with self._lock:
            for window in windows:
                held = self._windows.setdefault(window.key, [])
                _hold(held, _of_look(window, self._last_look, now) if held else window)
            by_end = sorted(self._windows.items(), key=lambda item: (item[1][-1].end, len(item[1])))
            for series, _ in by_end[: -2 * MAX_SERIES]:  # such as of processes that ended long ago
                del self._windows[series]
            self._last_look = now
            copies = {series: list(held) for series, held in self._windows.items()}
        self._states = {series: self._judged(held, now) for series, held in copies.items()}

    def _judged(self, windows: list[Window], now: float) -> dict[str, Any]:
        try:
            kind, alerts = self._judge(windows, now)
        except Exception as error:  # noqa: BLE001 - the other series are judged all the same
            return failed_state(error)
        return {"kind": kind, "alerts": [short(text) for text in alerts], "unjudged": []}

    def update_for_ever(self) -> threading.Thread:
        """Look now, and again every `LOOK` seconds in a thread that ends with the process."""
        self.update()

        def look() -> None:
            while True:
                time.sleep(LOOK)
                self.update()

        thread = threading.Thread(target=look, name="monitors", daemon=True)
        thread.start()
        return thread

    def is_stuck(self) -> bool:
        """Tell whether no look has ended for long, as where a disk does not answer."""
        return time.monotonic() - self._updated > SILENT_AFTER

    def states(self) -> Iterator[tuple[Window, dict[str, Any]]]:
        """Yield the newest window of each series, and its state with alerts."""
        with self._lock:
            newest = [windows[-1] for windows in self._windows.values()]
        for window in newest:
            yield window, self._states.get(window.key, UNKNOWN)

    def rows(self) -> dict[str, Any]:
        """Return a row for each series; those of layers are with their monitor's."""
        with self._lock:
            newest = {
                series: list(held)[-CURVE_WINDOWS:]
                for series, held in self._windows.items()
                if series[0] != LAYER
            }
        ordered = sorted(newest.items(), key=lambda entry: (_name(entry[1][-1]), entry[0]))
        error = self.error or (_too_many() if len(ordered) > MAX_SERIES else None)
        return {
            "folder": short(self._folder),
            "rows": [self._row(windows) for _, windows in ordered[:MAX_SERIES]],
            "error": error and error_fields(error),
        }

    def series(self, series_key: str, end: float | None = None) -> dict[str, Any]:
        """Return a series over time, and the window that ended at `end`, by default the newest.

        Raises InputError `live-unknown`.
        """
        with self._lock:
            held = {key: list(windows) for key, windows in self._windows.items()}
        windows = next((w for series, w in held.items() if _series_key(series) == series_key), None)
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
            "failed": [
                _scaled(window.rate and window.failed / (window.end - window.begin))
                for window in windows
            ],
            "window": None if chosen is None else _distribution(chosen, factor),
            "layers": _layers(windows[-1], held),
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
        state = self._states.get(windows[-1].key, UNKNOWN)
        if not state["alerts"] and self._now() - windows[-1].end > SILENT_AFTER:
            return state | {"kind": "silent"}
        return state


def _too_many() -> InputError:
    return InputError(
        f"There are more live series: {MAX_SERIES} are listed.",
        id="live-many",
        remedy="Let labels have fewer values; /metrics has up to 2,000 series of a monitor.",
    )


def _of_look(window: Window, begin: float, end: float) -> Window:
    """Return a window from one look to the next, unless it is longer or ended before these."""
    if window.end - window.begin > 1.5 * (end - begin) or window.end <= begin:
        return window
    return msgspec.structs.replace(window, begin=begin, end=end)


def _hold(held: list[Window], window: Window) -> None:
    """Add a window where its end belongs, to another process's that ended with it if there is."""
    place = bisect.bisect(held, window.end, key=lambda other: other.end)
    for number in range(max(place - 1, 0), min(place + 1, len(held))):
        other = held[number]
        shorter = min(window.end - window.begin, other.end - other.begin)
        if abs(window.end - other.end) < shorter / 2:
            (held[number],) = merged((other, window))
            return
    held.insert(place, window)
    del held[:-HELD_WINDOWS]


def _layers(window: Window, held: Mapping[Key, list[Window]]) -> list[dict[str, Any]]:
    """Return the layers that a monitor timed in the windows of a curve, the slowest first."""
    if window.series != LATENCY:
        return []
    monitor = window.labels.get(_NAME_LABEL)
    layers = merged(
        layer_window
        for (series, _), windows in held.items()
        if series == LAYER and windows[-1].labels.get(_NAME_LABEL) == monitor
        for layer_window in windows[-CURVE_WINDOWS:]
    )
    rows: list[dict[str, Any]] = [
        {
            "key": _series_key(layer.key),
            "layer": short(layer.labels.get("layer", "")),
            "middle": _scaled(layer.histogram.quantile(0.5), 1e9),
            "high": _scaled(layer.histogram.quantile(0.99), 1e9),
            "measured": layer.histogram.count,
        }
        for layer in layers
    ]
    return sorted(rows, key=lambda row: -(row["middle"] or 0.0))[:MAX_LAYERS]


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
    scaled = math.inf if value is None else float(f"{value * factor:.5g}")
    return scaled if math.isfinite(scaled) else None
