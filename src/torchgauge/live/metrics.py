"""What programs ask of `serve`: `/metrics`, as a Prometheus scrapes it, and whether it works."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from torchgauge.errors import StoreError
from torchgauge.history.fleet import TargetRuns
from torchgauge.live.history_view import HistoryView
from torchgauge.live.monitor_view import MonitorView
from torchgauge.monitoring.metrics_page import metrics_page
from torchgauge.records.headline.figure import Unit
from torchgauge.records.monitoring.window import Window


def page(
    totals: Sequence[Window], history: HistoryView | None, monitors: MonitorView | None, accept: str
) -> tuple[str, bytes]:
    """Return the content type and the body: totals of monitors, alerts, figures of the newest runs.

    What is unknown, as alerts that nobody could judge yet, has no series.
    """
    readings = [] if monitors is None else list(_of_monitors(monitors))
    readings += [] if history is None else list(_of_history(history))
    return metrics_page([*totals, *readings], accept)


def _reading(series: str, value: float, labels: dict[str, str], unit: Unit = "") -> Window:
    now = time.time()
    return Window(series=series, unit=unit, labels=labels, begin=now, end=now, last=float(value))


def _of_monitors(monitors: MonitorView) -> Iterator[Window]:
    yield _reading("serve_errors", monitors.error is not None, {"part": "monitors"})
    for window, state in monitors.states():
        yield from _alerts("alerts", state, window.labels | {"series": window.series})


def _of_history(history: HistoryView) -> Iterator[Window]:
    errors = 0
    try:
        for target in history.newest_targets():
            try:
                yield from list(_of_target(history, target))
            except Exception:  # noqa: BLE001 - the page says which; the other targets are as good
                errors += 1
    except StoreError:
        errors += 1
    yield _reading("serve_errors", errors, {"part": "history"})


def _of_target(history: HistoryView, target: TargetRuns) -> Iterator[Window]:
    labels = {"target": target.target}
    created = datetime.datetime.fromisoformat(target.newest).timestamp()
    yield _reading("history_runs", target.runs, labels)
    yield _reading("history_run_time", created, labels, "s")
    yield from _alerts("history_alerts", history.state_of(target), labels)
    for figure in history.newest_figures(target).values():
        own = labels | {"branch": figure.branch, "device": figure.device, "how": figure.how}
        name = f"history_{figure.metric}"
        yield _reading(name, figure.values[-1], own, cast(Unit, figure.unit))


def _alerts(series: str, state: dict[str, Any], labels: dict[str, str]) -> Iterator[Window]:
    if state["kind"] in ("alert", "steady"):
        yield _reading(series, len(state["alerts"]), labels)
