"""A line through times at several shapes, and the interpolation of what they differ from it by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.generation.stage_points import Floats
from torchgauge.imports import imported

# A column of units that is so near to a sum of others cannot be told from them.
INDEPENDENT = 1e-3
HUBER = 2.5
ROUNDS = 40
NORMAL_MAD = 1.4826
# Fewer points do not show which of them is the odd one.
FEWEST_TO_DOUBT = 6
# Distances, in logarithms of sequences and of context, over which differences fade to 1/e. By the
# number of rows libraries choose kernels, so what two sequences differ by four do not.
REACHES = (1.0, 4.0)
# The variance of noise over that of the differences.
NOISE = 0.1


class Line(NamedTuple):
    """Non-negative coefficients of 1, tokens and pairs, in seconds.

    `inverse` is the covariance of the coefficients for a relative standard deviation of 1, with
    zeros where the points do not tell a coefficient from the others; `columns` are those they do.
    """

    coefficients: Floats
    inverse: Floats
    columns: tuple[int, ...]


def line(units: Floats, seconds: Floats, weights: Floats) -> Line:
    """Return the line of least relative squares through points, no coefficient below 0.

    Errors of times grow with them, so residuals are relative to the line; Huber's weights hold
    disturbed points down. `weights` are how much of an independent measurement a point is.

    Source: Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23; Huber,
    "Robust Statistics" (1981), section 7.
    """
    columns = _independent(units / seconds[:, None])
    design = units[:, columns]
    level, robust = seconds, np.ones_like(seconds)
    solution = np.zeros(len(columns))
    for _ in range(ROUNDS):
        before = solution
        solution = _least_squares(design, seconds, np.sqrt(weights * robust) / level)
        level = design @ solution
        relative = seconds / level - 1
        if len(seconds) >= FEWEST_TO_DOUBT:
            scale = max(NORMAL_MAD * float(np.median(np.abs(relative))), 1e-12)
            robust = np.minimum(1.0, HUBER * scale / np.maximum(np.abs(relative), 1e-300))
        if np.allclose(before, solution, rtol=1e-10, atol=0.0):
            break
    rows = design * (np.sqrt(weights) / level)[:, None]
    size = np.linalg.norm(rows, axis=0)
    coefficients, inverse = np.zeros(units.shape[1]), np.zeros((units.shape[1],) * 2)
    coefficients[list(columns)] = solution
    inverse[np.ix_(columns, columns)] = np.linalg.inv((rows / size).T @ (rows / size)) / np.outer(
        size, size
    )
    return Line(coefficients, inverse, columns)


def _independent(rows: Floats) -> tuple[int, ...]:
    """Return the columns that those before them do not add up to, each scaled to length 1."""
    columns: list[int] = []
    for column in range(rows.shape[1]):
        chosen = rows[:, [*columns, column]]
        scaled = chosen / np.linalg.norm(chosen, axis=0)
        if len(rows) >= len(columns) + 1:
            smallest = np.linalg.svd(scaled, compute_uv=False)[-1]
            if smallest > INDEPENDENT:
                columns.append(column)
    return tuple(columns)


def _least_squares(design: Floats, seconds: Floats, weights: Floats) -> Floats:
    nnls = imported("scipy.optimize").nnls

    rows = design * weights[:, None]
    size = np.linalg.norm(rows, axis=0)
    scaled, _ = nnls(rows / size, seconds * weights)
    coefficients: Floats = scaled / size
    return coefficients


def interpolated(shapes: Floats, differences: Floats, targets: Floats) -> Floats:
    """Return the logarithmic differences at other shapes (sequences, context), [targets].

    Simple kriging with an exponential covariance: near measured shapes their differences, smoothed,
    and far from all of them nothing.

    Source: Cressie, "Statistics for Spatial Data" (1993), section 3.4.
    """
    covariance = _covariance(shapes, shapes) + NOISE * np.eye(len(shapes))
    smoothed: Floats = _covariance(targets, shapes) @ np.linalg.solve(covariance, differences)
    return smoothed


def _covariance(first: Floats, second: Floats) -> Floats:
    distances = np.log(first)[:, None, :] - np.log(second)[None, :, :]
    faded: Floats = np.exp(-np.linalg.norm(distances / REACHES, axis=2))
    return faded


def inside(shapes: Floats, targets: Floats) -> npt.NDArray[np.bool_]:
    """Return which shapes lie between the smallest and largest sequences and contexts."""
    low, high = shapes.min(axis=0), shapes.max(axis=0)
    between: npt.NDArray[np.bool_] = ((low <= targets) & (targets <= high)).all(axis=1)
    return between
