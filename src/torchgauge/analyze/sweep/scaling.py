"""A figure against the batch size: fixed cost, marginal cost, and whether a line fits.

The error of a latency grows with it, so residuals are relative. Huber's weights keep one disturbed
cell from turning the line; no more precision is claimed than the cells themselves have.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from torchgauge import units
from torchgauge.imports import imported
from torchgauge.records.record import Interval
from torchgauge.records.sweep import Cell, CellSettings, Fit, Scaling

_Array = npt.NDArray[np.float64]

HUBER = 3.0
ROUNDS = 50
# A residual counts where it exceeds this multiple of the points' own error and this share of the
# figure.
BEYOND_NOISE = 3.0
MATTERS = 0.10
NORMAL_MAD = 1.4826
# What these programs take is bounded by how they were exported, and so is what they plan.
BOUNDED_KINDS = ("exported", "aotinductor", "executorch")
Z = 1.959964


class Point(NamedTuple):
    """A figure at a batch; `error` is its own relative standard error, None where unknown."""

    batch: int
    value: float
    error: float | None = 0.0


def fit(points: Sequence[Point]) -> Fit | None:
    """Return the line through the points; None for fewer than two batches or a figure of 0.

    A robust start (the median of the slopes between pairs), then least squares of the relative
    residuals with Huber's weights. The spread is at least the points' own error. Intervals by
    Student's t with n − 2 degrees of freedom.

    Source: Huber, "Robust Statistics" (1981), section 7; Sen (1968) for the start.
    """
    points = sorted(points, key=lambda point: point.batch)
    if len({point.batch for point in points}) < 2 or any(point.value <= 0 for point in points):
        return None
    x = np.array([point.batch for point in points], dtype=np.float64)
    y = np.array([point.value for point in points], dtype=np.float64)
    errors = [point.error for point in points if point.error is not None]
    own = statistics.median(errors) if errors else 0.0
    line, weights = _converged(x, y, own)
    batch_values = tuple((point.batch, point.value) for point in points)
    line_fit = Fit(
        fixed=line[0], marginal=line[1], points=batch_values, is_linear=False, spread=own
    )
    if len(points) > 2:
        line_fit = _with_intervals(line_fit, x, y, own, weights)
    reason = _misfit_reason(line_fit, x, y, own)
    return replace(line_fit, is_linear=not reason, reason=reason)


def _converged(x: _Array, y: _Array, own: float) -> tuple[tuple[float, float], _Array]:
    """Return (fixed, marginal) and the weights of the points."""
    slopes = [
        (y[j] - y[i]) / (x[j] - x[i])
        for i, j in itertools.combinations(range(x.size), 2)
        if x[j] != x[i]
    ]
    marginal = statistics.median(slopes)
    fixed = statistics.median(y - marginal * x)
    weights = np.ones_like(x)
    for _ in range(ROUNDS):
        level = _level(fixed, marginal, x, y)
        relative = (y - fixed - marginal * x) / level
        if x.size > 3:  # of three points none can be said to be the odd one
            scale = max(NORMAL_MAD * float(np.median(np.abs(relative))), own, 1e-12)
            weights = np.minimum(1.0, HUBER * scale / np.maximum(np.abs(relative), 1e-300))
        before = (fixed, marginal)
        fixed, marginal = _least_squares(x, y, weights / level**2)
        if np.allclose(before, (fixed, marginal), rtol=1e-9, atol=0.0):
            break
    return (fixed, marginal), weights


def _level(fixed: float, marginal: float, x: _Array, y: _Array) -> _Array:
    """Return the level that residuals are relative to: the line where it is positive."""
    line: _Array = fixed + marginal * x
    return np.where(line > 0, line, y)


def _least_squares(x: _Array, y: _Array, weights: _Array) -> tuple[float, float]:
    root = np.sqrt(weights)
    design = np.column_stack((root, root * x))
    (fixed, marginal), *_ = np.linalg.lstsq(design, root * y, rcond=None)
    return float(fixed), float(marginal)


def _with_intervals(line_fit: Fit, x: _Array, y: _Array, own: float, weights: _Array) -> Fit:
    stdtrit = imported("scipy.special").stdtrit

    level = _level(line_fit.fixed, line_fit.marginal, x, y)
    relative = (y - line_fit.fixed - line_fit.marginal * x) / level
    freedom = x.size - 2
    # A cell held down is counted down, so that it does not widen what the others agree on.
    spread = max(math.sqrt(float(np.sum((weights * relative) ** 2)) / freedom), own)
    root = np.sqrt(weights) / level
    design = np.column_stack((root, root * x))
    matrix = np.linalg.inv(design.T @ design) * spread**2
    quantile = float(stdtrit(freedom, 0.975))
    half = [quantile * math.sqrt(matrix[i, i]) for i in (0, 1)]
    return replace(
        line_fit,
        spread=spread,
        covariance=(float(matrix[0, 0]), float(matrix[0, 1]), float(matrix[1, 1])),
        quantile=quantile,
        fixed_interval=Interval(low=line_fit.fixed - half[0], high=line_fit.fixed + half[0]),
        marginal_interval=Interval(
            low=line_fit.marginal - half[1], high=line_fit.marginal + half[1]
        ),
    )


def _misfit_reason(line_fit: Fit, x: _Array, y: _Array, own: float) -> str:
    """Return why the points do not lie on the line; "" where they do."""
    if line_fit.marginal_interval is None:
        return "two batches always lie on a line: measure a third"
    relative = (y - line_fit.fixed - line_fit.marginal * x) / _level(
        line_fit.fixed, line_fit.marginal, x, y
    )
    worst = int(np.argmax(np.abs(relative)))
    if abs(relative[worst]) > max(MATTERS, BEYOND_NOISE * own):
        side = "above" if relative[worst] > 0 else "below"
        by = units.percent(abs(float(relative[worst])))
        return f"batch {x[worst]:.0f} lies {by} {side} the line"
    if line_fit.marginal_interval.low <= 0:
        return "the cost per sample is not significantly above 0"
    return ""


def scaling(cells: Sequence[Cell]) -> tuple[Scaling, ...]:
    """Return how each row of batches scales, in the order of the cells."""
    rows: dict[CellSettings, list[Cell]] = {}
    for cell in cells:
        if cell.batch is not None:
            rows.setdefault(cell.settings.series, []).append(cell)
    return tuple(scaling_of(row) for row in rows.values() if _batches(row) > 1)


def _batches(row: Sequence[Cell]) -> int:
    return len({cell.batch for cell in row if cell.done or cell.status == "out of memory"})


def scaling_of(row: Sequence[Cell]) -> Scaling:
    """Return how cells scale that share all settings but the batch."""
    done = [cell for cell in row if cell.done]
    memory = fit([point for cell in done if (point := _memory(cell)) is not None])
    capacity = min((cell.capacity for cell in done if cell.capacity), default=None)
    failed = [cell.batch for cell in row if cell.status == "out of memory" and cell.batch]
    sizes = [cell.batch for cell in done if cell.batch]
    bounded = any(cell.target is not None and cell.target.kind in BOUNDED_KINDS for cell in done)
    return Scaling(
        settings=row[0].settings.series,
        latency=fit([point for cell in done if (point := _latency(cell)) is not None]),
        memory=memory,
        capacity=capacity,
        largest=None if bounded else largest_batch(memory, capacity, overhead(done)),
        largest_done=max(sizes, default=None),
        smallest_failed=min(failed, default=None),
    )


def overhead(cells: Sequence[Cell]) -> int:
    """Return the largest overhead of a process or its allocator beyond the tensors, in bytes."""
    return max((cell.overhead or 0 for cell in cells), default=0)


def largest_batch(memory: Fit | None, capacity: int | None, overhead_bytes: int) -> int | None:
    """Return the largest batch whose tensors and the overhead fit; None where unknown."""
    if memory is None or capacity is None or memory.marginal < 1:
        return None  # a sample has a byte at least: what the fit says is rounding
    room = (capacity - overhead_bytes - memory.fixed) / memory.marginal
    return max(0, math.floor(room + 1e-6))  # what fits exactly must not be lost to rounding


def _latency(cell: Cell) -> Point | None:
    if cell.latency is None or cell.batch is None:
        return None
    error = cell.latency.relative_error
    return Point(cell.batch, cell.latency.median, None if error is None else error / Z)


def _memory(cell: Cell) -> Point | None:
    if cell.memory is None or cell.batch is None:
        return None
    return Point(cell.batch, float(cell.memory.peak))
