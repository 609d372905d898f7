"""How the time of a prefill and of a decode step grows with sequences and context."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge import units
from torchgauge.analyze.generation.stage_points import (
    Floats,
    Line,
    Stage,
    StagePoint,
    decode_points,
    fitted_cells,
    inside,
    interpolated,
    line,
    prefill_points,
    unit_rows,
)
from torchgauge.imports import imported
from torchgauge.records.generation.cell import Coefficient, GenerationCell, StageFit
from torchgauge.records.record import Interval

_Owners = npt.NDArray[np.int64]

FEWEST_CELLS = 4
# Interpolation is tried from so many cells on, and taken where it is so much nearer.
FEWEST_TO_INTERPOLATE = 6
MOST_TO_INTERPOLATE = 400
NEARER = 0.95
# Smaller differences are those of rounding.
EXACT = 1e-6
# Cells are left out in so many groups at most.
MOST_GROUPS = 30
# A cell that differs by this share is reported.
FAR = 0.25


class _Measured(NamedTuple):
    """What is fitted, by point: units and shapes, seconds, and the index of each point's cell."""

    rows: Floats
    shapes: Floats
    seconds: Floats
    owners: _Owners


def fits(cells: Iterable[GenerationCell]) -> tuple[StageFit, ...]:
    """Return the fits of prefill and decode, for each kind of cache in the order of the cells.

    A stage has one where two contexts or numbers of sequences were measured. Its intervals are for
    another shape, measured in the same run: their width comes from how far the cells lie from the
    fit, which noise and what no line describes (weights that fit in a cache at small batches)
    cause alike, with the degrees of freedom of cells, since the steps of a cell share its state.
    """
    cells = tuple(cells)
    kinds = dict.fromkeys(cell.cache_kind for cell in cells if cell.done)
    stage_fits = []
    for kind in kinds:
        chosen = fitted_cells(cells, kind)
        window = common_window(chosen)
        stage_fits += [
            stage_fit("prefill", kind, prefill_points(chosen), window),
            stage_fit("decode", kind, decode_points(chosen), window),
        ]
    return tuple(fit for fit in stage_fits if fit is not None)


def common_window(cells: Iterable[GenerationCell]) -> int | None:
    """Return the window that the caches of all cells have; None where they have none."""
    windows = {cell.cache.window for cell in cells if cell.cache is not None}
    return windows.pop() if len(windows) == 1 else None


def stage_fit(
    stage: Stage, cache_kind: str, points: Sequence[StagePoint], window: int | None = None
) -> StageFit | None:
    """Return the fit to points; None of fewer than two different shapes.

    A coefficient that the shapes do not tell from the others (all of one batch) is 0 without an
    interval, and its time is in the others.
    """
    if len({point[1:3] for point in points}) < 2:
        return None
    shapes = np.array([point[1:3] for point in points], dtype=np.float64)
    measured = _Measured(
        unit_rows(stage, cache_kind, window, shapes),
        shapes,
        np.array([point.seconds for point in points]),
        np.array([point.cell for point in points]),
    )
    fitted = line(measured.rows, measured.seconds, _weights(measured.owners))
    residuals = np.log(measured.seconds / (measured.rows @ fitted.coefficients))
    by_cell = _cell_means(measured.owners, residuals)
    freedom = len(by_cell) - len(fitted.columns)
    enough = len(by_cell) >= FEWEST_CELLS and freedom > 0
    # Cells that lie on a line by luck are no surer than the calls of each say.
    own = statistics.median(point.error for point in points)
    spread = max(math.sqrt(float(by_cell @ by_cell) / max(1, freedom)), own)
    quantile = float(imported("scipy.special").stdtrit(freedom, 0.975)) if enough else None
    return StageFit(
        stage=stage,
        cache_kind=cache_kind,
        fixed=_coefficient(fitted, 0, spread, quantile),
        per_token=_coefficient(fitted, 1, spread, quantile),
        per_context=_coefficient(fitted, 2, spread, quantile),
        spread=spread,
        interpolated=_interpolated(measured, own) if enough else None,
        extrapolated=_extrapolated(measured) if enough else None,
        quantile=quantile,
        covariance=tuple(map(tuple, (fitted.inverse * spread**2).tolist())) if enough else (),
        cells=tuple((point.sequences, point.context, point.seconds) for point in points),
        window=window,
        reason=_too_few(points) if not enough else _doubt(points, residuals),
    )


def _weights(owners: _Owners) -> Floats:
    """Return 1 for each cell, divided over its points."""
    _, position, count = np.unique(owners, return_inverse=True, return_counts=True)
    weights: Floats = 1.0 / count[position]
    return weights


def _cell_means(owners: _Owners, values: Floats) -> Floats:
    _, position = np.unique(owners, return_inverse=True)
    means: Floats = np.bincount(position, values) / np.bincount(position)
    return means


def _coefficient(fitted: Line, column: int, spread: float, quantile: float | None) -> Coefficient:
    value = float(fitted.coefficients[column])
    if quantile is None or column not in fitted.columns:
        return Coefficient(value=value)
    reach = quantile * spread * math.sqrt(float(fitted.inverse[column, column]))
    return Coefficient(
        value=value, interval=Interval(low=max(0.0, value - reach), high=value + reach)
    )


def _interpolated(measured: _Measured, own: float) -> float | None:
    """Return how far cells among others lie from what these say of them; None if no nearer.

    Each cell is left out in turn, and predicted by the line through the others and by that with
    the interpolation of what these differ from it by.
    """
    cells = np.unique(measured.owners)
    if len(cells) < FEWEST_TO_INTERPOLATE or len(measured.seconds) > MOST_TO_INTERPOLATE:
        return None
    plain, nearer = [], []
    for group in np.array_split(cells, min(len(cells), MOST_GROUPS)):
        out = np.isin(measured.owners, group)
        shapes, differences = measured.shapes, _differences(measured, out)
        between = interpolated(shapes[~out], differences[~out], shapes[out])
        among = inside(shapes[~out], shapes[out])
        for cell in group:
            points = measured.owners[out] == cell
            if among[points].all():
                plain.append(float(differences[out][points].mean()))
                nearer.append(float((differences[out] - between)[points].mean()))
    if len(plain) < FEWEST_CELLS:
        return None
    error, without = _root_mean_square(nearer), _root_mean_square(plain)
    return max(error, own) if without > EXACT and error < NEARER * without else None


def _extrapolated(measured: _Measured) -> float | None:
    """Return how far the cells at the upper end of an axis lie from the line through the others."""
    errors: list[float] = []
    for axis in (0, 1):
        ends = measured.shapes[:, axis] == measured.shapes[:, axis].max()
        out = np.isin(measured.owners, np.unique(measured.owners[ends]))
        sizes = np.unique(measured.shapes[~out, axis])
        if len(np.unique(measured.owners[~out])) < FEWEST_CELLS or len(sizes) < 2:
            continue
        errors += _cell_means(measured.owners[out], _differences(measured, out)[out]).tolist()
    return _root_mean_square(errors) if errors else None


def _differences(measured: _Measured, out: npt.NDArray[np.bool_]) -> Floats:
    """Return the logarithms of all times over the line through those that are not left out."""
    rows, seconds, owners = measured.rows[~out], measured.seconds[~out], measured.owners[~out]
    expected = measured.rows @ line(rows, seconds, _weights(owners)).coefficients
    differences: Floats = np.log(measured.seconds / np.maximum(expected, 1e-300))
    return differences


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


def _too_few(points: Sequence[StagePoint]) -> str:
    """Return what to measure for an interval."""
    missing = []
    if len({point.context for point in points}) < FEWEST_CELLS:
        missing.append("prompts: --prompt 128,512,2048")
    if len({point.sequences for point in points}) < 2:
        missing.append("batches: --batch 1,4")
    count = len({point.cell for point in points})
    return (
        f"{count} {'cell does' if count == 1 else 'cells do'} not show how far another lies from "
        f"the fit; measure more {' and '.join(missing or ['shapes'])}"
    )


def _doubt(points: Sequence[StagePoint], residuals: Floats) -> str:
    worst = int(np.argmax(np.abs(residuals)))
    by = float(np.expm1(residuals[worst]))
    if abs(by) < FAR:
        return ""
    point = points[worst]
    return (
        f"{point.sequences} {'sequence' if point.sequences == 1 else 'sequences'} with "
        f"{point.context:,} positions lie {units.percent(abs(by))} "
        f"{'above' if by > 0 else 'below'} the fit"
    )
