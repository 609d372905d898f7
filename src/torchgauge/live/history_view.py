"""What the page says about a history: its targets, the runs of one, the trend of a figure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import Connection

from torchgauge import units
from torchgauge.analyze.history.alerts import Rule
from torchgauge.analyze.monitoring.window_alerts import PREFIX
from torchgauge.errors import InputError, StoreError
from torchgauge.history import fleet
from torchgauge.history.fleet import FIRST, Place, SeriesRuns, TargetRuns
from torchgauge.history.trend import DEFAULT_METRICS
from torchgauge.live.analyses import Analyses
from torchgauge.live.failures import failed_state
from torchgauge.live.history_reader import (
    ANALYZED_RUNS,
    DEFAULT_RULES,
    HistoryReader,
    Judgement,
    analyzed_series,
    judgement,
)
from torchgauge.records.run import Run
from torchgauge.records.trend import Alert, Trend, TrendSeries
from torchgauge.report.page import page_trend
from torchgauge.report.page.page_shorter import short

CURVE_RUNS = 60  # of a small curve in the table


LISTED_RUNS = 50


LISTED_TARGETS = 100


MAX_SERIES = 200  # of one target, to choose from


_METRIC_RUNS = 20  # the newest ones, whose figures can be chosen


_SIDE_METRICS = ("memory_peak", "parameters")


class HistoryView:
    """Answers questions about a history; what did not change since is not read again."""

    def __init__(
        self, reader: HistoryReader, executor: Executor, rules: Sequence[Rule] = DEFAULT_RULES
    ) -> None:
        self._reader = reader
        self._rules = tuple(rule for rule in rules if not rule.metric.startswith(PREFIX))
        self._judgements: Analyses[Judgement] = Analyses(executor)
        self._trends = TrendView(reader, executor)
        self._state = ""
        self._targets: dict[str, TargetRuns] = {}
        self._newest = functools.lru_cache(maxsize=10 * LISTED_TARGETS)(self._read_newest)
        self._series = functools.lru_cache(maxsize=LISTED_TARGETS)(self._read_series)

    def fleet(self, words: str = "", limit: int = LISTED_TARGETS) -> dict[str, Any]:
        """Return a row for each target whose name holds `words`, the newest first."""
        targets = self._current()
        fitting = [entry for entry in targets.values() if words.lower() in entry.target.lower()]
        rows = [self._guarded_row(entry) for entry in fitting[:limit]]
        return {
            "store": self._reader.display_name,
            "targets": len(targets),
            "fitting": len(fitting),
            "runs": sum(entry.runs for entry in targets.values()),
            "rows": rows,
        }

    def target(self, target_key: str, series_key: str = "") -> dict[str, Any]:
        """Return a target's series, figures, alerts and runs; those of the newest series at first.

        Raises InputError `live-unknown`.
        """
        entry = self._entry(target_key)
        all_series = self._series(entry)
        chosen = _chosen(all_series, series_key)
        runs = self._reader.query(fleet.newest_runs, chosen.identity, LISTED_RUNS)
        names = self._reader.query(fleet.metric_names, list(runs)[-_METRIC_RUNS:])
        ordered = [name for name in DEFAULT_METRICS if name in names]
        return {
            "key": target_key,
            "target": short(entry.target),
            "runs": entry.runs,
            "series": [_series(series) for series in all_series[:MAX_SERIES]],
            "chosen": fleet.key(*chosen.identity),
            "metrics": [*ordered, *(name for name in names if name not in ordered)],
            "newest": [_run(run) for run in reversed(runs.values())],
            "state": self.state_of(entry),
        }

    def trend(self, target_key: str, series_key: str, metric: str) -> dict[str, Any]:
        """Return a figure over all runs of a series, and its newest runs with what changed.

        Raises InputError `live-unknown`.
        """
        series = _chosen(self._series(self._entry(target_key)), series_key)
        return self._trends.trend(series, metric)

    def page(self, uuid: str) -> str:
        """Return the page of a run's record. Raises InputError `run-unknown`, RecordError."""
        from torchgauge.report.page import html

        return html.render(self._reader.read(lambda store: store.profile(uuid)))

    def close(self) -> None:
        """Close the history."""
        self._reader.close()

    def _current(self) -> dict[str, TargetRuns]:
        """Return the targets by key, read again if a run came or went."""

        def read(connection: Connection) -> tuple[str, list[TargetRuns] | None]:
            state = fleet.state(connection)
            return state, None if state == self._state else fleet.targets(connection)

        state, targets = self._reader.query(read)
        if targets is not None:
            self._targets = {fleet.key(entry.target): entry for entry in targets}
            self._state = state
        return self._targets

    def _entry(self, target_key: str) -> TargetRuns:
        entry = self._current().get(target_key)
        if entry is None:
            raise unknown("The history has no such target.")
        return entry

    def _guarded_row(self, entry: TargetRuns) -> dict[str, Any]:
        """Return a target's row; of one that cannot be made, a row that says so."""
        try:
            return self._row(entry) | {"state": self.state_of(entry)}
        except StoreError:  # of all rows alike
            raise
        except Exception as error:  # noqa: BLE001 - the other rows are as good as before
            return _head(entry) | {"state": failed_state(error)}

    def newest_targets(self) -> list[TargetRuns]:
        """Return the targets that are listed at first, the newest first. Raises StoreError."""
        return list(self._current().values())[:LISTED_TARGETS]

    def newest_figures(self, entry: TargetRuns) -> dict[str, TrendSeries]:
        """Return the figures of a target's newest run by name, with the runs before it."""
        return self._newest(entry)[1]

    def state_of(self, entry: TargetRuns) -> dict[str, Any]:
        """Return the state of a target's alerts; that of fewer runs while these are analyzed."""
        try:
            judged, _ = self._judgements.result(
                entry.target,
                (entry.runs, entry.newest),
                lambda: judgement(self._reader, entry.target, self._rules),
            )
        except Exception as error:  # noqa: BLE001 - the figures are as good as before
            return failed_state(error)
        if judged is None:
            return {"kind": "pending", "alerts": [], "unjudged": []}
        steady = judged.judged and not judged.unjudged
        return {
            "kind": "alert" if judged.alerts else "steady" if steady else "unknown",
            "alerts": [_alert(alert) for alert in judged.alerts],
            "unjudged": judged.unjudged,
        }

    def _read_newest(self, entry: TargetRuns) -> tuple[tuple[str, ...], dict[str, TrendSeries]]:
        identity = self._reader.query(fleet.newest_identity, entry.target)
        points, _ = self._reader.query(fleet.newest_points, identity, DEFAULT_METRICS, CURVE_RUNS)
        # An older run may have figures that the newest one lacks.
        return identity, {
            trend.metric: trend for trend in points if trend.points[-1].created >= entry.newest
        }

    def _row(self, entry: TargetRuns) -> dict[str, Any]:
        identity, by_name = self._newest(entry)
        main = next((by_name[name] for name in DEFAULT_METRICS if name in by_name), None)
        side = [by_name.get(name) for name in _SIDE_METRICS]
        series = SeriesRuns(identity, entry.runs, entry.newest)
        return _head(entry) | {
            "place": _place(series),
            "main": _figure(main),
            "side": [_figure(trend if trend is not main else None) for trend in side],
            "curve": [] if main is None else [float(f"{v:.4g}") for v in main.values],
        }

    def _read_series(self, entry: TargetRuns) -> list[SeriesRuns]:
        return self._reader.query(fleet.series_of_target, entry.target)


def _head(entry: TargetRuns) -> dict[str, Any]:
    """Return a target's row without figures."""
    return {
        "key": fleet.key(entry.target),
        "target": short(entry.target),
        "place": "",
        "runs": entry.runs,
        "newest": entry.newest,
        "main": None,
        "side": [None] * len(_SIDE_METRICS),
        "curve": [],
    }


def _chosen(all_series: Sequence[SeriesRuns], series_key: str) -> SeriesRuns:
    """Return the series of a key; the newest one for an empty key."""
    for series in all_series:
        if not series_key or fleet.key(*series.identity) == series_key:
            return series
    raise unknown("The history has no such series.")


def _place(series: SeriesRuns) -> str:
    """Return what tells a series from others of its target."""
    facts = series.facts
    names = ("branch", "device", "precision")
    parts = [*(facts[name] for name in names), facts["gpu"] or facts["cpu"]]
    return short(" · ".join(filter(None, parts)))


def _series(series: SeriesRuns) -> dict[str, Any]:
    return {
        "key": fleet.key(*series.identity),
        "label": _place(series),
        "model": short(series.facts["model"]),
        "machine": series.facts["machine"][:8],
        "workload": series.facts["workload"][:8],
        "runs": series.runs,
        "newest": series.newest,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "uuid": run.uuid,
        "created": run.created,
        "commit": run.commit[: page_trend.COMMIT],
        "dirty": run.dirty,
        "message": short(run.message),
        "torch": short(run.torch),
    }


def _alert(alert: Alert) -> str:
    figure = alert.metric if alert.layer is None else f"{alert.layer or 'model'} {alert.metric}"
    return short(f"{alert.rule}: {figure} {alert.message}")


def _figure(series: TrendSeries | None) -> dict[str, str] | None:
    """Return the newest figure of a series as text."""
    if series is None:
        return None
    value = units.amount(series.values[-1], series.unit, series.metric)
    return {"name": series.metric, "value": value, "how": series.how}


TREND_POINTS = 600
# An answer waits so long for changes and for values of all runs, in seconds: often they are there.
PATIENCE = 0.08
# Runs that are read at once: others want to read meanwhile.
CHUNK = 5_000
HELD_FIGURES = 8


@dataclass
class _Held:
    """What was read of a figure of all runs: `runs` until `last`, and their `values`."""

    runs: int = 0
    last: Place = FIRST
    values: list[float] = field(default_factory=list)


class TrendView:
    """Answers questions about figures over time; the last ones are not read again."""

    def __init__(self, reader: HistoryReader, executor: Executor) -> None:
        self._reader = reader
        self._analyses: Analyses[list[TrendSeries]] = Analyses(executor, PATIENCE)
        self._all: Analyses[tuple[float, ...]] = Analyses(executor, PATIENCE)
        self._held: dict[object, _Held] = {}
        self._newest = functools.lru_cache(maxsize=8)(self._read_newest)

    def trend(self, series: SeriesRuns, metric: str) -> dict[str, Any]:
        """Return a figure over all runs of a series, and its newest runs with what changed.

        While values are read and changes are searched, `pending` is true, and there may be only the
        newest runs. Raises InputError `live-unknown`.
        """
        newest = self._newest(series, metric)
        if newest is None:
            raise unknown("The series has no such figure.")
        subject, state = (series.identity, metric), (series.runs, series.newest)
        values: Sequence[float] = [point.value for point in newest.points]
        has_all = series.runs <= ANALYZED_RUNS
        if not has_all:
            read, has_all = self._all.result(
                subject, state, lambda: self._read_values(series, metric)
            )
            values = read or values
        analyzed, is_current = self._analyses.result(
            subject, state, lambda: analyzed_series(self._reader, series.identity, metric)
        )
        unit, factor = page_trend.PAGE_UNITS.get(newest.unit, ("count", 1.0))
        positions = downsampled(values, TREND_POINTS)
        drawn = analyzed[0] if analyzed and is_current else newest
        return {
            "metric": metric,
            "runs": len(values),
            "unit": unit,
            "at": [position + 1 for position in positions],
            "values": [float(f"{values[position] * factor:.7g}") for position in positions],
            "first": max(len(values) - len(drawn.points), 0),
            "newest": [point.run for point in drawn.points],
            "pending": not (is_current and has_all),
            **(page_trend.series(Trend(store="", series=(drawn,))) or {}),
        }

    def _read_newest(self, series: SeriesRuns, metric: str) -> TrendSeries | None:
        """Return a figure of the newest runs as a series without changes; None if none has it."""

        def read(connection: Connection) -> TrendSeries | None:
            points, _ = fleet.newest_points(connection, series.identity, [metric], ANALYZED_RUNS)
            return next(iter(points), None)

        return self._reader.query(read)

    def _read_values(self, series: SeriesRuns, metric: str) -> tuple[float, ...]:
        """Return a figure of all runs of a series: what was read before, and the runs since."""
        subject = (series.identity, metric)
        held = self._held.pop(subject, _Held())
        self._read_on(held, *subject)
        if held.runs != series.runs:  # one came in between, or one was removed
            held = _Held()
            self._read_on(held, *subject)
        self._held[subject] = held
        if len(self._held) > HELD_FIGURES:
            del self._held[next(iter(self._held))]
        return tuple(held.values)

    def _read_on(self, held: _Held, identity: tuple[str, ...], metric: str) -> None:
        while True:
            figures = self._reader.query(fleet.values, identity, metric, held.last, CHUNK)
            held.runs += len(figures)
            held.values += [value for _, value in figures if value is not None]
            if figures:
                held.last = figures[-1][0]
            if len(figures) < CHUNK:
                return


def downsampled(values: Sequence[float], limit: int) -> list[int]:
    """Return the positions of at most `limit` values (4 or more): ends and extremes of stretches.

    Of each of limit ÷ 4 equal stretches the first, the smallest, the largest and the last value
    stay, so that a line through them covers the same pixels, and every spike is there.

    Source: Jugel and others (2014), "M4: a visualization-oriented time series data aggregation".
    """
    count = len(values)
    if count <= limit:
        return list(range(count))
    array = np.asarray(values, dtype=np.float64)
    bounds = np.linspace(0, count, limit // 4 + 1).astype(int)
    positions: set[int] = set()
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        stretch = array[begin:end]
        positions |= {begin, begin + int(stretch.argmin()), begin + int(stretch.argmax()), end - 1}
    return sorted(positions)


def unknown(message: str) -> InputError:
    """Return the error for what the history does not have."""
    return InputError(
        message,
        id="live-unknown",
        cause="It may have been removed since the page was made.",
        remedy="Go back to the list.",
    )
