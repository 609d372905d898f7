"""The seconds of prefills and decode steps that fits are made to, and what grows with them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from torchgauge.analyze.generation.decode_steps import decode_steps
from torchgauge.records.generation.cell import GenerationCell

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
    return tuple(
        StagePoint(
            index,
            cell.batch * cell.beams,
            cell.prompt,
            cell.prefill.value,
            _error(call.prefill for call in cell.timed_calls),
        )
        for index, cell in enumerate(cells)
        if cell.prefill is not None and cell.prefill.value > 0
    )


def first_token_points(cells: Sequence[GenerationCell]) -> tuple[StagePoint, ...]:
    """Return a point for each cell: its time to the first token."""
    return tuple(
        StagePoint(
            index,
            cell.batch * cell.beams,
            cell.prompt,
            cell.ttft.value,
            _error(call.first_token for call in cell.timed_calls),
        )
        for index, cell in enumerate(cells)
        if cell.ttft is not None and cell.ttft.value > 0
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
