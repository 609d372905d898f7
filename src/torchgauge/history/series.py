"""The figures of runs as series: one workload, machine and branch each, never two mixed."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, select

from torchgauge.history.content import LAYER_METRICS
from torchgauge.history.faults import rows
from torchgauge.history.store import ALL_RUNS, BATCH_SIZE, Selection, select_runs
from torchgauge.history.tables import layers, metrics, yardsticks
from torchgauge.records.record import How, IntervalScope
from torchgauge.records.run import Run
from torchgauge.records.trend import TrendPoint, TrendSeries

_FIGURE = 8  # bytes that a row has at least in a file
# What is equal in all runs of a series, beside its figure and layer.
SERIES_FIELDS = (
    "target",
    "model",
    "branch",
    "machine",
    "cpu",
    "gpu",
    "device",
    "precision",
    "workload",
)


class _Figure(NamedTuple):
    """One figure of one run; `layer` None is the whole model."""

    run: int
    layer: str | None
    metric: str
    unit: str
    how: How
    value: float
    low: float | None = None
    high: float | None = None
    scope: IntervalScope | None = None


def read_series(
    connection: Connection,
    selection: Selection = ALL_RUNS,
    names: Sequence[str] = (),
    paths: str | None = None,
) -> list[TrendSeries]:
    """Return the series of the figures `names`, those with most runs first.

    With `paths`, a layer's path or a pattern of paths, they are figures of layers
    (`content.LAYER_METRICS`), else headline figures (`records/figures.py`).
    """
    return series_of_runs(connection, dict(select_runs(connection, selection)), names, paths)


def series_of_runs(
    connection: Connection,
    chosen: Mapping[int, Run],
    names: Sequence[str],
    paths: str | None = None,
) -> list[TrendSeries]:
    """Return the series of these runs, oldest first by their numbers, as `read_series` does."""
    figures: dict[int, list[_Figure]] = {number: [] for number in chosen}
    for figure in _figures(connection, list(chosen), names, paths):
        if figure.run not in figures or figure.metric not in names:
            raise msgspec.ValidationError("a row is found where another should be")
        figures[figure.run].append(figure)
    points: dict[tuple[str | None, ...], list[TrendPoint]] = {}
    units: dict[tuple[str | None, ...], tuple[str, How]] = {}
    for number, run in chosen.items():
        for figure in figures[number]:
            key = (*(getattr(run, name) for name in SERIES_FIELDS), figure.metric, figure.layer)
            points.setdefault(key, []).append(_point(run, figure))
            units[key] = (figure.unit, figure.how)
    all_series = [_series(key, points[key], *units[key]) for key in points]
    order = {name: index for index, name in enumerate(names)}
    return sorted(
        all_series, key=lambda series: (-len(series.points), series.target, order[series.metric])
    )


def read_yardsticks(
    connection: Connection, selection: Selection = ALL_RUNS
) -> dict[str, dict[str, float]]:
    """Return the seconds of reference work by kind, of each run (its uuid) that timed any."""
    return yardsticks_of_runs(connection, dict(select_runs(connection, selection)))


def yardsticks_of_runs(
    connection: Connection, chosen: Mapping[int, Run]
) -> dict[str, dict[str, float]]:
    """Return the seconds of reference work of these runs, by their numbers."""
    numbers = list(chosen)
    seconds_by_run: dict[str, dict[str, float]] = {}
    for start in range(0, len(numbers), BATCH_SIZE):
        query = select(yardsticks).where(yardsticks.c.run.in_(numbers[start : start + BATCH_SIZE]))
        for number, kind, seconds in rows(connection, query, _FIGURE):
            if number not in chosen:
                raise msgspec.ValidationError("a row is found where another should be")
            seconds_by_run.setdefault(chosen[number].uuid, {})[kind] = seconds
    return msgspec.convert(seconds_by_run, dict[str, dict[str, float]])


def metric_names(connection: Connection) -> list[str]:
    """Return the headline figures that any run has."""
    names = connection.scalars(select(metrics.c.name).distinct()).all()
    return sorted(msgspec.convert(names, list[str]))


def _series(
    key: tuple[str | None, ...], points: list[TrendPoint], unit: str, how: How
) -> TrendSeries:
    shared_fields: dict[str, Any] = dict(zip(SERIES_FIELDS, key, strict=False))
    metric, layer = str(key[-2]), key[-1]
    return TrendSeries(
        **shared_fields, metric=metric, layer=layer, unit=unit, how=how, points=tuple(points)
    )


def _point(run: Run, figure: _Figure) -> TrendPoint:
    return TrendPoint(
        run=run.uuid,
        created=run.created,
        value=figure.value,
        low=figure.low,
        high=figure.high,
        scope=figure.scope,
        commit=run.commit,
        dirty=run.dirty,
        torch=run.torch,
    )


def _figures(
    connection: Connection, numbers: Sequence[int], names: Sequence[str], paths: str | None
) -> Iterator[_Figure]:
    for start in range(0, len(numbers), BATCH_SIZE):
        batch = numbers[start : start + BATCH_SIZE]
        if paths is None:
            condition = metrics.c.run.in_(batch) & metrics.c.name.in_(names)
            for row in rows(connection, select(metrics).where(condition), _FIGURE):
                columns = (row.unit, row.how, row.value, row.low, row.high, row.scope)
                yield msgspec.convert((row.run, None, row.name, *columns), _Figure)
            continue
        condition = layers.c.run.in_(batch) & layers.c.metric.in_(names)
        query = select(layers).where(condition).order_by(layers.c.run, layers.c.path)
        for row in rows(connection, query, _FIGURE):
            if row.path == paths or fnmatch.fnmatchcase(str(row.path), paths):
                unit, how = LAYER_METRICS.get(row.metric, ("", "unknown"))
                columns_of_layer = (row.run, row.path, row.metric, unit, how, row.value)
                yield msgspec.convert(columns_of_layer, _Figure)
