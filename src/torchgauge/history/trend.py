"""The trend of figures over the runs of a store, and where it changed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from torchgauge.analyze.latency import correction
from torchgauge.analyze.statistics import change_points
from torchgauge.analyze.statistics.change_points import Change
from torchgauge.errors import InputError
from torchgauge.history.content import LAYER_METRICS
from torchgauge.history.series import metric_names, read_series, read_yardsticks
from torchgauge.history.store import ALL_RUNS, Selection, Store
from torchgauge.records.figures import LATENCY, worse_when_higher
from torchgauge.records.trend import CONFIRM, Trend, TrendChange, TrendCorrection, TrendSeries

DEFAULT_METRICS = (
    *("latency_median", "generation_ttft", "generation_tpot", "generation_tokens"),
    *("serving_latency_p50", "serving_latency_p99", "serving_ttft_p95", "serving_tpot_p50"),
    *("serving_completed", "serving_goodput", "serving_capacity"),
    *("memory_peak", "flops", "parameters"),
)
DEFAULT_LAYER_METRICS = ("host_time", "device_time")
CORRECTED = frozenset(f"latency_{name}" for name in LATENCY)


def trend(
    store: Store,
    selection: Selection = ALL_RUNS,
    metrics: Sequence[str] = (),
    layer: str | None = None,
) -> Trend:
    """Return the series of a store, each with the places where its level changed.

    `metrics` are names of headline figures (default: `DEFAULT_METRICS`), or with `layer`, a path or
    pattern, figures of layers (default: `DEFAULT_LAYER_METRICS`). Raises InputError
    `metric-unknown`.
    """
    names = tuple(metrics) or (DEFAULT_METRICS if layer is None else DEFAULT_LAYER_METRICS)
    if known_names := store.read(metric_names) if layer is None else sorted(LAYER_METRICS):
        _check(metrics, known_names)
    all_series, yardsticks = store.read(
        lambda connection: (
            read_series(connection, selection, names, layer),
            read_yardsticks(connection, selection) if CORRECTED & set(names) else {},
        )
    )
    return Trend(
        store=store.display_name,
        series=tuple(
            with_changes(with_correction(series, yardsticks), len(all_series))
            for series in all_series
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
    speed_correction = series_correction(
        series.values,
        [yardsticks.get(point.run, {}) for point in series.points],
        [point.torch for point in series.points],
    )
    if speed_correction is None:
        return series
    points = tuple(
        point if log is None else replace(point, corrected=point.value / math.exp(log))
        for point, log in zip(series.points, speed_correction.log_ratios, strict=True)
    )
    correction = TrendCorrection(
        before=speed_correction.before, after=speed_correction.between, runs=speed_correction.runs
    )
    is_complete = speed_correction.runs == len(points)
    return replace(
        series,
        points=points,
        correction=correction,
        changes_in="corrected" if is_complete else "measured",
    )


def with_changes(series: TrendSeries, series_count: int = 1) -> TrendSeries:
    """Return the series with its changes; more evidence is asked where many series are examined."""
    values = series.corrected if series.changes_in == "corrected" else series.values
    unknown = ""
    if series.how == "counted":
        detected = change_points.exact_changes(values)
    elif min(values) <= 0:
        detected, unknown = [], "a value is not above 0, and changes are relative"
    elif len(values) < 2 * change_points.MIN_RUNS:
        detected, unknown = (
            [],
            f"changes are detected from at least {2 * change_points.MIN_RUNS} runs",
        )
    else:
        detected = change_points.changes(values, series_count)
    changes = tuple(_change(series, change) for change in detected)
    return replace(series, changes=changes, unknown=unknown)


def _change(series: TrendSeries, change: Change) -> TrendChange:
    before, after = series.points[change.first], series.points[change.last]
    higher = worse_when_higher(series.metric, series.unit)
    return TrendChange(
        likeliest=change.start,
        first=change.first,
        last=change.last,
        after=before.commit,
        until=after.commit,
        size=change.size,
        interval=change.interval,
        worse=None if higher is None else higher == (change.size > 0),
        lasting=change.lasting,
        software="" if before.torch == after.torch else f"torch {before.torch} → {after.torch}",
        how="counted" if series.how == "counted" else "estimated",
        note="" if series.how == "counted" else CONFIRM,
    )


def _check(names: Sequence[str], known_names: Sequence[str]) -> None:
    for name in names:
        if name not in known_names:
            raise InputError(
                f"There is no figure '{name}'.",
                id="metric-unknown",
                remedy=f"Choose from {', '.join(known_names)}.",
            )


PRIOR_RUNS = 1.0
"""The ridge towards no correction weighs as much as this many runs."""


@dataclasses.dataclass(frozen=True)
class SeriesCorrection:
    """The machine's effect on each run of a series.

    Attributes:
        log_ratios: The part of ln(run ÷ a run at the machine's usual speed) that the machine
            explains, to be subtracted; None for a run whose yardstick does not tell.
        between: Standard deviation of a run's log figure after it, by neighbouring runs.
        before: The same without a correction.
        runs: Runs that have a correction.
    """

    log_ratios: tuple[float | None, ...]
    between: float
    before: float
    runs: int


def series_correction(
    values: Sequence[float], yardsticks: Sequence[Mapping[str, float]], versions: Sequence[str]
) -> SeriesCorrection | None:
    """Return the machine's effect on each run of a series of one target, oldest first.

    The weights of a run are learnt from all others, from what changes between neighbours. Another
    version of torch makes the reference work another one, so that the machine's usual speed is the
    median over the runs of each version. A run has no correction whose yardstick lacks a kind that
    the newest yardstick has, or where fewer than six others of its version have one. None where no
    run has one, and where the correction would not have made the spread smaller by a fifth.
    """
    newest = next((yardstick for yardstick in reversed(yardsticks) if yardstick), {})
    complete = [
        value > 0 and bool(newest) and all(correction.has_kind(yardstick, kind) for kind in newest)
        for value, yardstick in zip(values, yardsticks, strict=True)
    ]
    complete_versions = [
        version for version, is_complete in zip(versions, complete, strict=True) if is_complete
    ]
    indices = [
        index
        for index, is_complete in enumerate(complete)
        if is_complete and complete_versions.count(versions[index]) > correction.MIN_RUNS
    ]
    if not indices:
        return None
    call = statistics.median(values[index] for index in indices)
    work = np.array(
        [correction.log_work(yardsticks[index], tuple(newest), call) for index in indices]
    )
    version = np.array([versions[index] for index in indices])
    for name in set(version):
        work[version == name] -= np.median(work[version == name], axis=0)
    logs = correction.Logs(np.log([values[index] for index in indices]), work)
    explained = np.array(
        [
            work[row] @ correction.fitted_weights(logs.without(row).moves(), PRIOR_RUNS)
            for row in range(len(indices))
        ]
    )
    corrected_logs = correction.Logs(logs.medians - explained, work)
    before, after = (
        math.sqrt(float((series_logs.moves().medians ** 2).mean()))
        for series_logs in (logs, corrected_logs)
    )
    if after >= correction.MAX_RESIDUAL_SHARE * before:  # both 0 where all runs are equal
        return None
    by_index = dict(zip(indices, map(float, explained), strict=True))
    ratios = tuple(by_index.get(index) for index in range(len(values)))
    return SeriesCorrection(ratios, between=after, before=before, runs=len(indices))
