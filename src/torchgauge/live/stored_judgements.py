"""Rules that need days of the windows that monitors keep in a history: levels and growth."""

from __future__ import annotations

import fnmatch
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.level_change import DAY, DAYS
from torchgauge.analyze.monitoring.window_alerts import (
    PREFIX,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.errors import TorchgaugeError
from torchgauge.history.windows import PROCESS, read_windows
from torchgauge.live.analyses import Analyses
from torchgauge.live.history_reader import HistoryReader
from torchgauge.records.monitoring.window import LAYER, Key, Window
from torchgauge.records.trend import Alert

_AnyRule = Rule | WindowRule
_Results = dict[tuple[_AnyRule, Key], list[Alert] | None]
INTERVAL = 600.0  # seconds: two weeks of windows of a minute take some of them


class StoredJudgements:
    """Holds the windows of a history against rules, in the background.

    Of `rules` those on levels and on growth of monitors are taken. Without a history they cannot be
    judged.
    """

    def __init__(
        self,
        reader: HistoryReader | None,
        rules: Iterable[Rule | WindowRule],
        executor: Executor,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._reader, self._now = reader, now
        self._rules = tuple(rule for rule in rules if _days(rule))
        self._results: Analyses[_Results] = Analyses(executor)

    def alerts(self, window: Window) -> list[list[Alert] | None]:
        """Return the alerts of each rule that fits a series; None of one that was not judged."""
        fitting = [rule for rule in self._rules if _fits(rule, window)]
        if not fitting or self._reader is None:
            return [None for _ in fitting]
        judge = partial(self._judge, self._reader)
        results, _ = self._results.result("all", self._now() // INTERVAL, judge)
        return [(results or {}).get((rule, _series(window))) for rule in fitting]

    def _judge(self, reader: HistoryReader) -> _Results:
        now = self._now()
        results: _Results = {}
        for name in {_name(rule) for rule in self._rules}:
            rules = [rule for rule in self._rules if _name(rule) == name]
            try:
                windows = _read(reader, name, max(map(_days, rules)), now)
            except TorchgaugeError:  # the page says elsewhere that a history cannot be read
                continue
            by_series: dict[Key, list[Window]] = {}
            for window in windows:
                by_series.setdefault(_series(window), []).append(window)
            for series, group in by_series.items():
                for rule in (rule for rule in rules if _fits(rule, group[0])):
                    recent = [w for w in group if w.end > now - _days(rule) * DAY]
                    results[rule, series] = _alerts(rule, recent, now)
        return results


def _alerts(rule: _AnyRule, windows: Sequence[Window], now: float) -> list[Alert] | None:
    if isinstance(rule, WindowRule):
        return window_alerts(rule, windows, now)
    return alerts(rule, window_series(windows, now))


def _read(reader: HistoryReader, name: str, days: float, now: float) -> list[Window]:
    # Day by day: others want to read meanwhile.
    ends = [now - day * DAY for day in range(math.ceil(days) - 1, -1, -1)]
    parts = [partial(read_windows, series=name, since=end - DAY, until=end) for end in ends]
    return [window for part in parts for window in reader.read(part)]


def _days(rule: _AnyRule) -> float:
    """Return how many days of windows a rule needs; 0 of one that is judged by newer ones."""
    if isinstance(rule, WindowRule):
        return DAYS + 1 if rule.kind == "level" else 0
    return rule.over.total_seconds() / DAY if rule.metric.startswith(PREFIX) else 0


def _name(rule: _AnyRule) -> str:
    if isinstance(rule, WindowRule):
        return rule.series
    return rule.metric.removeprefix(PREFIX).rpartition("_")[0]


def _fits(rule: _AnyRule, window: Window) -> bool:
    if isinstance(rule, WindowRule):
        return rule.fits(window)
    return (
        _name(rule) == window.series
        and (rule.layer is None) == (window.series != LAYER)
        and fnmatch.fnmatchcase(window.labels.get("layer", ""), rule.layer or "*")
        and fnmatch.fnmatchcase(window.labels.get("monitor", ""), rule.target)
    )


def _series(window: Window) -> Key:
    """Return the key of a series of all processes, as the rules judge it."""
    return window.without(PROCESS, "host").key
