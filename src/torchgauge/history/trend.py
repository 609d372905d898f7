"""What became of figures over the runs of a store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from torchgauge.analyze import change_points
from torchgauge.analyze.change_points import Change
from torchgauge.analyze.series_correction import series_correction
from torchgauge.errors import InputError
from torchgauge.history.content import LAYER_METRICS
from torchgauge.history.series import metric_names, read_series, read_yardsticks
from torchgauge.history.store import EVERY, Selection, Store
from torchgauge.model.figures import LATENCY, worse_when_higher
from torchgauge.model.trend import CONFIRM, Trend, TrendChange, TrendCorrection, TrendSeries

SHOWN = ("latency_median", "memory_peak", "flops", "parameters")
SHOWN_OF_LAYERS = ("host_time", "device_time")
CORRECTED = frozenset(f"latency_{name}" for name in LATENCY)


def trend(
    store: Store,
    selection: Selection = EVERY,
    metrics: Sequence[str] = (),
    layer: str | None = None,
) -> Trend:
    """Return the series of a store, each with the places where its level changed.

    `metrics` are names of headline figures (default: `SHOWN`), or with `layer`, a path or pattern,
    figures of layers (default: `SHOWN_OF_LAYERS`). Raises InputError `metric-unknown`,
    MissingExtraError for ruptures.
    """
    names = tuple(metrics) or (SHOWN if layer is None else SHOWN_OF_LAYERS)
    if known := store.read(metric_names) if layer is None else sorted(LAYER_METRICS):
        _check(metrics, known)
    found, yardsticks = store.read(
        lambda connection: (
            read_series(connection, selection, names, layer),
            read_yardsticks(connection, selection) if CORRECTED & set(names) else {},
        )
    )
    return Trend(
        store=store.shown,
        series=tuple(
            with_changes(with_correction(series, yardsticks), len(found)) for series in found
        ),
    )


def with_correction(
    series: TrendSeries, yardsticks: Mapping[str, Mapping[str, float]]
) -> TrendSeries:
    """Return a latency's series with its runs' values at the machine's usual speed.

    `yardsticks` are the runs' seconds of reference work by kind. What it does not help stays as
    it is.
    """
    if series.metric not in CORRECTED:
        return series
    found = series_correction(
        series.values,
        [yardsticks.get(point.run, {}) for point in series.points],
        [point.torch for point in series.points],
    )
    if found is None:
        return series
    points = tuple(
        point if log is None else replace(point, corrected=point.value / math.exp(log))
        for point, log in zip(series.points, found.log_ratios, strict=True)
    )
    correction = TrendCorrection(before=found.before, after=found.between, runs=found.runs)
    whole = found.runs == len(points)
    return replace(
        series,
        points=points,
        correction=correction,
        changes_in="corrected" if whole else "measured",
    )


def with_changes(series: TrendSeries, together: int = 1) -> TrendSeries:
    """Return the series with its changes; more evidence is asked where many are seen `together`."""
    values = series.corrected if series.changes_in == "corrected" else series.values
    unknown = ""
    if series.how == "counted":
        found = change_points.exact_changes(values)
    elif min(values) <= 0:
        found, unknown = [], "a value is not above 0, and changes are relative"
    elif len(values) < 2 * change_points.FEWEST:
        found, unknown = [], f"changes are told from {2 * change_points.FEWEST} runs on"
    else:
        found = change_points.changes(values, together)
    changes = tuple(_change(series, one) for one in found)
    return replace(series, changes=changes, unknown=unknown)


def _change(series: TrendSeries, found: Change) -> TrendChange:
    before, after = series.points[found.first], series.points[found.last]
    higher = worse_when_higher(series.metric, series.unit)
    return TrendChange(
        at=found.at,
        first=found.first,
        last=found.last,
        after=before.commit,
        until=after.commit,
        size=found.size,
        interval=found.interval,
        worse=None if higher is None else higher == (found.size > 0),
        lasting=found.lasting,
        software="" if before.torch == after.torch else f"torch {before.torch} → {after.torch}",
        how="counted" if series.how == "counted" else "estimated",
        note="" if series.how == "counted" else CONFIRM,
    )


def _check(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f"There is no figure '{name}'.",
                id="metric-unknown",
                remedy=f"Choose from {', '.join(known)}.",
            )
