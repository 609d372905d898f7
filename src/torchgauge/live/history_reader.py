"""One reader of a history that others write to, move or replace meanwhile."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from sqlalchemy import Connection

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.level_change import DAY, DAYS
from torchgauge.analyze.monitoring.window_alerts import (
    LONG,
    PREFIX,
    WindowRule,
    fits,
    series_of,
    window_alerts,
    window_series,
)
from torchgauge.analyze.statistics.change_points import SMALLEST
from torchgauge.errors import StoreError, TorchgaugeError
from torchgauge.history import connection as connections
from torchgauge.history import fleet
from torchgauge.history.retention import patiently
from torchgauge.history.store import Store
from torchgauge.history.trend import DEFAULT_METRICS, with_changes, with_correction
from torchgauge.history.windows import PROCESS, count_windows, read_windows
from torchgauge.live.analyses import Analyses
from torchgauge.records.monitoring.window import Key, Window
from torchgauge.records.trend import Alert, TrendSeries

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
# A request waits so long for a history that another program has locked, in seconds.
LONGEST_WAIT = 5.0


class HistoryReader:
    """Reads from a history in one thread at a time; opens it again where its file is another.

    Raises what `Store.open` raises, at first and whenever it is read.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._place = connections.parse_place(location)
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._stamp: object = None
        self.display_name = self._place.display_name
        self.read(lambda _store: None)

    def read(self, query: Callable[[Store], Result]) -> Result:
        """Return what `query` returns of the store; waits while somebody has locked it."""
        with self._lock:
            try:
                return patiently(lambda: query(self._current()), longest=LONGEST_WAIT)
            except StoreError as error:
                if error.id != "store-busy":
                    self._close()
                raise

    def query(
        self,
        function: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Return what a function of a connection returns, which sees one moment of the history."""
        return self.read(
            lambda store: cast(
                Result, store.read(lambda connection: function(connection, *arguments, **options))
            )
        )

    def close(self) -> None:
        """Give back the connections."""
        with self._lock:
            self._close()

    def _current(self) -> Store:
        """Return the store, opened again if its file changed its place or its kind.

        A copy of an older store, and a file that nobody wrote to when it was opened, are read as
        they were then.
        """
        stamp = self._file_stamp()
        if self._store is None or stamp != self._stamp:
            self._close()
            self._store, self._stamp = Store.open(self._location, create=False), stamp
        return self._store

    def _file_stamp(self) -> object:
        file = self._place.file
        if file is None:
            return None
        try:
            status = file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size, connections.has_log(self._place)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = None


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


ANALYZED_RUNS = 300  # the newest ones of a series, in which changes are searched
# What is reported where no file of rules is given: a level that moved for the worse, and stayed.
DEFAULT_RULES = tuple(
    Rule(name="change", kind="change", metric=metric, limit=SMALLEST, unit="ratio")
    for metric in DEFAULT_METRICS
)


class Judgement(NamedTuple):
    """Alerts on a target's newest series.

    Attributes:
        alerts: What is broken.
        judged: How many rules could be judged.
        unjudged: Figures that rules are about and that have too few runs.
    """

    alerts: tuple[Alert, ...]
    judged: int
    unjudged: tuple[str, ...]


def judgement(reader: HistoryReader, target: str, rules: Sequence[Rule]) -> Judgement:
    """Return what the rules say of the series of a target's newest run.

    Raises InputError `alert-unit`, StoreError.
    """
    identity = reader.query(fleet.newest_identity, target)
    broken: list[Alert] = []
    judged, unjudged = 0, []
    by_subject: dict[tuple[str, str | None], list[TrendSeries]] = {}
    for rule in rules:
        subject = (rule.metric, rule.layer)
        if subject not in by_subject:
            by_subject[subject] = analyzed_series(reader, identity, *subject)
        rule_alerts = alerts(rule, by_subject[subject])
        judged += rule_alerts is not None
        broken += rule_alerts or []
        if rule_alerts is None and any(map(rule.fits, by_subject[subject])):
            unjudged.append(rule.metric)
    return Judgement(tuple(broken), judged, tuple(dict.fromkeys(unjudged)))


def analyzed_series(
    reader: HistoryReader, identity: tuple[str, ...], metric: str, layer: str | None = None
) -> list[TrendSeries]:
    """Return a figure of the newest runs of a series, with the places where its level changed.

    With `layer`, a path or a pattern, it is a figure of layers.
    """

    def read(connection: Connection) -> tuple[list[TrendSeries], dict[str, dict[str, float]]]:
        return fleet.newest_points(connection, identity, [metric], ANALYZED_RUNS, layer)

    points, yardsticks = reader.query(read)
    return [with_changes(with_correction(series, yardsticks), len(points)) for series in points]


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
        fitting = [rule for rule in self._rules if fits(rule, window)]
        if not fitting or self._reader is None:
            return [None for _ in fitting]
        judge = partial(self._judge, self._reader)
        results, _ = self._results.result("all", self._now() // INTERVAL, judge)
        return [(results or {}).get((rule, _series(window))) for rule in fitting]

    def _judge(self, reader: HistoryReader) -> _Results:
        now = self._now()
        results: _Results = {}
        for name in set(map(series_of, self._rules)):
            rules = [rule for rule in self._rules if series_of(rule) == name]
            try:
                windows = _read(reader, name, max(map(_days, rules)), now)
            except TorchgaugeError:  # the page says elsewhere that a history cannot be read
                continue
            by_series: dict[Key, list[Window]] = {}
            for window in windows:
                by_series.setdefault(_series(window), []).append(window)
            for series, group in by_series.items():
                for rule in (rule for rule in rules if fits(rule, group[0])):
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


def _series(window: Window) -> Key:
    """Return the key of a series of all processes, as the rules judge it."""
    return window.without(PROCESS, "host").key
