"""Windows of monitors in a history: added, found by monitor, series and time, and removed."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, select, true

from torchgauge.analyze.history.alerts import Rule, alerts
from torchgauge.analyze.monitoring.level_change import DAY, DAYS
from torchgauge.analyze.monitoring.window_alerts import (
    LONG,
    PREFIX,
    WindowRule,
    window_alerts,
    window_series,
)
from torchgauge.errors import RecordError
from torchgauge.history.faults import rows
from torchgauge.history.store import ALL_RUNS, BATCH_SIZE, Selection, Store
from torchgauge.history.tables import windows as table
from torchgauge.history.trend import trend
from torchgauge.reading import RECORD, inflated
from torchgauge.records.monitoring.window import Window
from torchgauge.records.trend import Alert, Trend

PROCESS = "process"  # the label of windows in a history: of which process each is
_KEY = ("monitor", "series", "labels", "process", "end")
_ROW = 60  # bytes that a row has at least in a file


def add_windows(store: Store, windows: Iterable[Window], process: str) -> int:
    """Save the windows of a process, all or none, and return how many; again changes nothing.

    Raises StoreError.
    """
    added = [_row(window, process) for window in windows]
    same_key = delete(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in _KEY))

    def write(connection: Connection) -> int:
        for start in range(0, len(added), BATCH_SIZE):
            batch = added[start : start + BATCH_SIZE]
            # A connection may break after its commit: then the batch is there already.
            keys = [{f"key_{name}": row[name] for name in _KEY} for row in batch]
            connection.execute(same_key, keys)
            connection.execute(table.insert(), batch)
        return len(added)

    return store.write(write) if added else 0


def read_windows(
    store: Store,
    *,
    monitor: str | None = None,
    series: str | None = None,
    since: float | None = None,
    until: float | None = None,
    read_before: dict[tuple[Any, ...], float] | None = None,
) -> list[Window]:
    """Return the windows that end after `since` and not after `until`, oldest first.

    Those whose keys are in `read_before` are left out, and the others come into it with their ends.
    Each has the label `process`: `merged(window.without("process") for window in …)` is all
    processes'. Raises StoreError, RecordError `store-damaged`.
    """
    conditions = (
        true() if monitor is None else table.c.monitor == monitor,
        true() if series is None else table.c.series == series,
        true() if since is None else table.c.end > since,
        true() if until is None else table.c.end <= until,
    )
    columns = [table.c[name] for name in (*_KEY, "data")]
    query = select(*columns).where(*conditions).order_by(table.c.end)

    def selected(connection: Connection) -> dict[tuple[Any, ...], Window]:
        windows = {}
        for *key, data in rows(connection, query, _ROW):
            if tuple(key) not in (read_before or ()):
                window = windows[tuple(key)] = _window(data, store.display_name)
                # Nobody else has it yet: a copy costs a check of all.
                window.labels[PROCESS] = key[_KEY.index(PROCESS)]
        return windows

    windows: dict[tuple[Any, ...], Window] = store.read(selected)
    if read_before is not None:
        read_before.update((key, window.end) for key, window in windows.items())
    return list(windows.values())


def count_windows(store: Store, before: float) -> int:
    """Return how many windows ended before a time. Raises StoreError."""
    query = select(func.count()).select_from(table).where(table.c.end < before)
    count: int = store.read(lambda connection: connection.execute(query).scalar_one())
    return count


def remove_windows(store: Store, before: float) -> int:
    """Remove the windows that ended before a time; return how many. Raises StoreError."""
    query = delete(table).where(table.c.end < before)
    return store.write(lambda connection: connection.execute(query).rowcount)


def _row(window: Window, process: str) -> dict[str, Any]:
    return {
        "monitor": window.labels.get("monitor", ""),
        "series": window.series,
        "labels": msgspec.json.encode(dict(sorted(window.labels.items()))).decode(),
        "process": process,
        "end": window.end,
        "data": zlib.compress(msgspec.msgpack.encode(window), 1),
    }


def _window(data: object, origin: str) -> Window:
    try:
        if not isinstance(data, bytes):  # SQLite keeps any type in any column
            raise zlib.error("it is not a compressed window")
        return msgspec.msgpack.decode(inflated(data, RECORD, f"A window of {origin}"), type=Window)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise RecordError(
            f"A window of {origin} cannot be read.",
            id="store-damaged",
            cause=str(error),
            remedy="Restore the store from a copy, or remove its windows.",
        ) from error


def watch(
    store: Store,
    rules: Sequence[Rule],
    selection: Selection = ALL_RUNS,
    *,
    window_rules: Sequence[WindowRule] = (),
    now: float | None = None,
) -> Trend:
    """Return the series that the rules are about, with alerts and the rules that fit no run.

    Windows of monitors, which some rules are about, are those until `now` (seconds since 1970;
    None: the present). Raises InputError `alert-unit`.
    """
    now = time.time() if now is None else now
    windows = _windows(store, rules, window_rules, now)
    trends: dict[tuple[str, str | None], Trend] = {}
    all_alerts: list[Alert] = []
    unmatched: list[str] = []
    for rule in rules:
        key = (rule.metric, rule.layer)
        if key not in trends:
            trends[key] = _trend(store, rule, selection, windows, now)
        _add(rule.name, alerts(rule, trends[key].series), all_alerts, unmatched)
    for window_rule in window_rules:
        _add(window_rule.name, window_alerts(window_rule, windows, now), all_alerts, unmatched)
    series = tuple(
        trend_series for rule_trend in trends.values() for trend_series in rule_trend.series
    )
    return Trend(
        store=store.display_name,
        series=series,
        alerts=tuple(all_alerts),
        unmatched=tuple(unmatched),
    )


def _windows(
    store: Store, rules: Sequence[Rule], window_rules: Sequence[WindowRule], now: float
) -> list[Window]:
    """Return the windows that the rules need: of two weeks and a day where a level is judged."""
    spans: dict[str, float] = {}
    for rule in rules:
        if rule.metric.startswith(PREFIX):
            name = rule.metric.removeprefix(PREFIX).rpartition("_")[0]
            spans[name] = max(spans.get(name, LONG), rule.over.total_seconds())
    for window_rule in window_rules:
        needed = (DAYS + 1) * DAY if window_rule.kind == "level" else LONG
        spans[window_rule.series] = max(spans.get(window_rule.series, LONG), needed)
    return [
        window
        for name, span in spans.items()
        for window in read_windows(store, series=name, since=now - span - LONG, until=now)
    ]


def _trend(
    store: Store, rule: Rule, selection: Selection, windows: Sequence[Window], now: float
) -> Trend:
    if not rule.metric.startswith(PREFIX):
        return trend(store, selection, [rule.metric], rule.layer)
    since = now - max(rule.over.total_seconds(), LONG) - LONG
    recent = [window for window in windows if window.end > since]
    fitting = [series for series in window_series(recent, now) if rule.fits(series)]
    return Trend(store=store.display_name, series=tuple(fitting))


def _add(
    name: str, broken: list[Alert] | None, all_alerts: list[Alert], unmatched: list[str]
) -> None:
    if broken is None:
        unmatched.append(name)
    all_alerts += broken or []
