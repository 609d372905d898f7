"""Changes of level in the windows that monitors keep in a history, looked for now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from torchgauge.analyze.monitoring.level_change import DAY, DAYS
from torchgauge.analyze.monitoring.window_alerts import WindowRule, window_alerts
from torchgauge.errors import TorchgaugeError
from torchgauge.history.windows import read_windows
from torchgauge.live.analyses import Analyses
from torchgauge.live.history_reader import HistoryReader
from torchgauge.records.monitoring.window import Window
from torchgauge.records.trend import Alert

_Subject = tuple[WindowRule, str]  # a rule, and a monitor's name
INTERVAL = 600.0  # seconds: two weeks of windows of a minute take some of them


class StoredLevels:
    """Holds the windows of a history against rules on levels, in the background."""

    def __init__(
        self,
        reader: HistoryReader,
        rules: Sequence[WindowRule],
        executor: Executor,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._reader, self._rules, self._now = reader, tuple(rules), now
        self._results: Analyses[dict[_Subject, list[Alert] | None]] = Analyses(executor)

    def alerts(self, window: Window) -> list[list[Alert] | None]:
        """Return the alerts of each rule that fits a series; None of one that was not judged."""
        fitting = [rule for rule in self._rules if rule.fits(window)]
        if not fitting:
            return []
        results, _ = self._results.result("levels", self._now() // INTERVAL, self._judge)
        monitor = window.labels.get("monitor", "")
        return [(results or {}).get((rule, monitor)) for rule in fitting]

    def _judge(self) -> dict[_Subject, list[Alert] | None]:
        now, results = self._now(), {}
        for name in {rule.series for rule in self._rules}:
            # Day by day: others want to read meanwhile.
            ends = [now - day * DAY for day in range(DAYS, -1, -1)]
            parts = [partial(read_windows, series=name, since=end - DAY, until=end) for end in ends]
            try:
                windows = [window for part in parts for window in self._reader.read(part)]
            except TorchgaugeError:  # the page says elsewhere that a history cannot be read
                continue
            by_monitor: dict[str, list[Window]] = {}
            for window in windows:
                by_monitor.setdefault(window.labels.get("monitor", ""), []).append(window)
            for rule in (rule for rule in self._rules if rule.series == name):
                for monitor, group in by_monitor.items():
                    results[rule, monitor] = window_alerts(rule, group, now)
        return results
