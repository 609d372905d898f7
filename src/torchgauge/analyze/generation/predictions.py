"""What the fits say of shapes that were not measured."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.generation.fits import common_window, stage_fit
from torchgauge.analyze.generation.stage_points import (
    Floats,
    first_token_points,
    fitted_cells,
    inside,
    interpolated,
    unit_rows,
)
from torchgauge.records.generation.cell import GenerationCell, GenerationPrediction, StageFit
from torchgauge.records.generation.generation import Generation
from torchgauge.records.record import Interval

# An interval over more than this factor to either side says nothing.
WIDEST = 100.0
# Contexts of a call are averaged over so many of them.
MOST_CONTEXTS = 1000


class StageTime(NamedTuple):
    """Seconds of a stage by its fit, with the interval of one measurement.

    `extrapolated` lies outside of the cells that the fit is made to.
    """

    seconds: float
    interval: Interval | None
    extrapolated: bool


def predict(
    generation: Generation, *, batch: int, prompt: int, new_tokens: int, cache_kind: str
) -> GenerationPrediction | None:
    """Return what a call of this shape is expected to take; None where the fits do not say.

    The time to the first token is fitted to that of the cells, as prefill is: choosing the token
    and what comes before the first forward are in it. The time per token is the mean over the
    contexts of the call.
    """
    cells = fitted_cells(generation.cells, cache_kind)
    decode = generation.fit("decode", cache_kind)
    first = stage_fit("prefill", cache_kind, first_token_points(cells), common_window(cells))
    if first is None or decode is None:
        return None
    sequences = batch * cells[0].beams
    ttft = stage_time(first, sequences, (prompt, prompt))
    tpot = stage_time(decode, sequences, (prompt + 1, prompt + max(1, new_tokens - 1)))
    if ttft is None or tpot is None:
        return None
    return GenerationPrediction(
        batch=batch,
        prompt=prompt,
        new_tokens=new_tokens,
        cache_kind=cache_kind,
        ttft=ttft.seconds,
        tpot=tpot.seconds,
        ttft_interval=ttft.interval,
        tpot_interval=tpot.interval,
        cache_bytes=cache_bytes(cells, sequences, prompt + new_tokens - 1),
        extrapolated=ttft.extrapolated or tpot.extrapolated,
    )


def stage_time(fit: StageFit, sequences: int, contexts: tuple[int, int]) -> StageTime | None:
    """Return the mean seconds of a stage from the first to the last of `contexts`.

    None of other sequences, or of another context, than those of all cells where they are the same:
    the fit does not say how it grows with them. Among cells, what they differ from the fit by is
    interpolated where that was found to be nearer.
    """
    measured_shapes = np.array([cell[:2] for cell in fit.cells], dtype=np.float64)
    count = min(contexts[1] - contexts[0] + 1, MOST_CONTEXTS)
    shapes = np.array([(sequences, context) for context in np.linspace(*contexts, count)])
    if any(
        (measured_shapes[:, axis] == measured_shapes[0, axis]).all()
        and (shapes[:, axis] != measured_shapes[0, axis]).any()
        for axis in (0, 1)
    ):
        return None
    coefficients = [part.value for part in (fit.fixed, fit.per_token, fit.per_context)]
    rows = unit_rows(fit.stage, fit.cache_kind, fit.window, shapes)
    row = rows.mean(axis=0)
    seconds = float(row @ coefficients)
    among = bool(inside(measured_shapes, shapes).all())
    deviation = _deviation(fit, row, seconds, among)
    if among and fit.interpolated is not None:
        measured = np.array([cell[2] for cell in fit.cells])
        differences = np.log(
            measured
            / (unit_rows(fit.stage, fit.cache_kind, fit.window, measured_shapes) @ coefficients)
        )
        seconds *= math.exp(float(interpolated(measured_shapes, differences, shapes).mean()))
        deviation = fit.interpolated
    return StageTime(seconds, _interval(fit, seconds, deviation), not among)


def _deviation(fit: StageFit, row: Floats, seconds: float, among: bool) -> float:
    """Return the relative standard deviation of one measurement from what the fit says of it."""
    if not fit.covariance or seconds <= 0:
        return fit.spread
    spread = fit.spread if among else max(fit.spread, fit.extrapolated or 0.0)
    of_line = float(row @ np.array(fit.covariance) @ row) / seconds**2
    return math.sqrt(spread**2 + max(0.0, of_line))


def _interval(fit: StageFit, seconds: float, deviation: float) -> Interval | None:
    if fit.quantile is None or fit.quantile * deviation > math.log(WIDEST):
        return None
    factor = math.exp(fit.quantile * deviation)
    return Interval(low=seconds / factor, high=seconds * factor, scope="process")


def cache_bytes(cells: tuple[GenerationCell, ...], sequences: int, positions: int) -> int | None:
    """Return the bytes of a cache that grows by position; None where they are not proportional.

    They are where each cell's cache holds as much as its formula says, and all the same per
    position and sequence.
    """
    if cells and all(cell.cache_kind == "none" for cell in cells):
        return 0
    rates = set()
    for cell in cells:
        cache = cell.cache
        exact = cache is not None and cache.held == cache.used == cache.formula
        if cell.cache_kind != "dynamic" or cache is None or not exact or cache.window is not None:
            return None
        places = (cache.positions or 0) * (cache.sequences or 0)
        if not places or cache.held % places:
            return None
        rates.add(cache.held // places)
    return rates.pop() * sequences * positions if len(rates) == 1 else None
