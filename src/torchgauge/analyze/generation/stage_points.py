"""The seconds of prefills and decode steps that fits are made to, and what grows with them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.generation.cells import decode_steps
from torchgauge.imports import imported
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell, RepeatedTime

Stage = Literal["prefill", "decode"]
Floats = npt.NDArray[np.float64]

# A cell's decode steps are divided by context into so many points, of so many steps at least.
MOST_POINTS = 4
FEWEST_STEPS = 8
# The median of normal values is less certain than their mean.
MEDIAN_BY_MEAN = math.sqrt(math.pi / 2)
FEWEST_CALLS = 3


class StagePoint(NamedTuple):
    """The seconds of a stage at one shape.

    Attributes:
        cell: The index of its cell.
        sequences: Rows of the batch.
        context: Positions of a sequence.
        seconds: The median over calls.
        error: Its relative standard error by the calls; 0 where these are too few.
    """

    cell: int
    sequences: int
    context: int
    seconds: float
    error: float = 0.0


def fitted_cells(cells: Iterable[GenerationCell], cache_kind: str) -> tuple[GenerationCell, ...]:
    """Return the cells that a fit is made to: without an assistant, the fewest beams alone."""
    chosen = [
        cell
        for cell in cells
        if cell.done and cell.cache_kind == cache_kind and not cell.assisted and cell.prompt > 0
    ]
    beams = min((cell.beams for cell in chosen), default=1)
    return tuple(cell for cell in chosen if cell.beams == beams)


def prefill_points(cells: Sequence[GenerationCell]) -> tuple[StagePoint, ...]:
    """Return a point for each cell: the time of its prefill."""
    return _points(cells, lambda cell: cell.prefill, lambda call: call.prefill)


def first_token_points(cells: Sequence[GenerationCell]) -> tuple[StagePoint, ...]:
    """Return a point for each cell: its time to the first token."""
    return _points(cells, lambda cell: cell.ttft, lambda call: call.first_token)


def _points(
    cells: Sequence[GenerationCell],
    time_of_cell: Callable[[GenerationCell], RepeatedTime | None],
    time_of_call: Callable[[GenerationCall], float | None],
) -> tuple[StagePoint, ...]:
    return tuple(
        StagePoint(
            index,
            cell.batch * cell.beams,
            cell.prompt,
            time.value,
            _error(map(time_of_call, cell.timed_calls)),
        )
        for index, cell in enumerate(cells)
        if (time := time_of_cell(cell)) is not None and time.value > 0
    )


def decode_points(cells: Sequence[GenerationCell]) -> tuple[StagePoint, ...]:
    """Return the points of each cell: its steps with the time between them, by context.

    The steps of a call are divided into up to four parts. A part's time is the median over calls
    of the median over steps, by which a few disturbed ones do not count; all are scaled so that
    their mean is the cell's time per token, in which these do.
    """
    return tuple(itertools.chain.from_iterable(map(_cell_points, range(len(cells)), cells)))


def _cell_points(index: int, cell: GenerationCell) -> list[StagePoint]:
    if cell.tpot is None or cell.tpot.value <= 0:
        return []
    periods = [[step.period for step in decode_steps(call)] for call in cell.timed_calls]
    steps = min((len(of_call) for of_call in periods if of_call), default=0)
    if not steps:
        return []
    ends = np.linspace(0, steps, min(MOST_POINTS, max(1, steps // FEWEST_STEPS)) + 1).astype(int)
    parts = [range(begin, end) for begin, end in itertools.pairwise(ends.tolist())]
    typical = [
        statistics.median(
            statistics.median(of_call[step] for step in part) for of_call in periods if of_call
        )
        for part in parts
    ]
    mean = sum(time * len(part) for time, part in zip(typical, parts, strict=True)) / steps
    error = _error(call.per_token for call in cell.timed_calls)
    scale = cell.tpot.value / mean if mean > 0 else 0.0
    return [
        StagePoint(
            index,
            cell.batch * cell.beams,
            # The first step attends to the prompt and to the token that it computes.
            cell.prompt + 1 + (part[0] + part[-1]) // 2,
            time * scale,
            error,
        )
        for time, part in zip(typical, parts, strict=True)
        if time * scale > 0
    ]


def _error(values: Iterable[float | None]) -> float:
    """Return the relative standard error of the median of normal logarithms."""
    logs = [math.log(value) for value in values if value]
    if len(logs) < FEWEST_CALLS:
        return 0.0
    return MEDIAN_BY_MEAN * statistics.stdev(logs) / math.sqrt(len(logs))


def unit_rows(stage: Stage, cache_kind: str, window: int | None, shapes: npt.ArrayLike) -> Floats:
    """Return 1, tokens and pairs of each shape (sequences, context), [shapes, 3].

    A prefill computes all positions, as does a decode step without a cache: the n-th attends to n,
    or to those of its window. A decode step with a cache computes one.
    """
    sequences, context = np.asarray(shapes, dtype=np.float64).reshape(-1, 2).T
    attended = context if window is None else np.minimum(context, window)
    if stage == "prefill" or cache_kind == "none":
        pairs = attended * (attended + 1) / 2 + (context - attended) * attended
        return np.column_stack((np.ones_like(context), sequences * context, sequences * pairs))
    return np.column_stack((np.ones_like(context), sequences, sequences * attended))


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
