"""Predictions of shapes whose times are known."""

import math

import msgspec
import pytest
from tests.support.generation_grids import (
    DECODE,
    GAP,
    SETUP,
    cache,
    generation,
    grid,
    grid_cell,
    prefill_time,
    step_time,
)

from torchgauge.analyze.generation.predictions import cache_bytes, predict

SHAPE = {"batch": 3, "prompt": 500, "new_tokens": 33, "cache_kind": "dynamic"}


def test_a_shape_on_the_line_is_predicted_as_it_is_measured():
    predicted = predict(generation(grid()), **SHAPE)
    measured = grid_cell(3, 500)
    assert predicted.ttft == pytest.approx(measured.ttft.value, rel=1e-6)
    assert predicted.ttft == pytest.approx(SETUP + prefill_time(3, 500) + GAP, rel=1e-6)
    assert predicted.tpot == pytest.approx(measured.tpot.value, rel=1e-3)
    assert not predicted.extrapolated
    assert predicted.ttft_interval.low <= predicted.ttft <= predicted.ttft_interval.high


def test_the_time_per_token_is_the_mean_over_the_contexts_of_the_call():
    predicted = predict(generation(grid()), **SHAPE | {"new_tokens": 201})
    mean = math.fsum(step_time(3, context) for context in range(501, 701)) / 200
    # Points lie half a position off the middle of their contexts.
    assert predicted.tpot == pytest.approx(mean, abs=DECODE[2] * 3)


@pytest.mark.parametrize("parts", [{"batch": 8}, {"prompt": 2000}, {"prompt": 16}])
def test_outside_of_the_cells_is_extrapolated(parts):
    assert predict(generation(grid()), **SHAPE | parts).extrapolated


def test_a_context_beyond_the_longest_one_is_extrapolated():
    assert predict(generation(grid()), **SHAPE | {"new_tokens": 2000}).extrapolated


def test_nothing_is_predicted_of_what_no_cell_shows():
    one_batch = generation(grid((1,)))
    assert predict(one_batch, **SHAPE) is None
    assert predict(one_batch, **SHAPE | {"batch": 1}).tpot == pytest.approx(
        step_time(1, 516.5), rel=1e-3
    )
    assert predict(generation(grid((1, 2, 4, 8), (64,))), **SHAPE) is None
    assert predict(generation(grid()), **SHAPE | {"cache_kind": "static"}) is None
    assert predict(generation([]), **SHAPE) is None


def test_too_few_cells_predict_without_an_interval():
    predicted = predict(generation(grid((1, 4), (64,)) + grid((1,), (512,))), **SHAPE)
    assert predicted.ttft_interval is None
    assert predicted.tpot_interval is None
    assert predicted.ttft > 0


def test_the_bytes_of_a_cache_that_grows_by_position():
    """1,024 bytes a position and sequence; the last token is never in the cache."""
    assert predict(generation(grid()), **SHAPE).cache_bytes == 1024 * 3 * 532


@pytest.mark.parametrize(
    "parts",
    [{"formula": None}, {"used": None}, {"held": 10**6}, {"positions": None}, {"window": 32}],
)
def test_no_bytes_are_predicted_of_a_cache_that_does_not(parts):
    odd = msgspec.structs.replace(cache(1, 96), **parts)
    cells = tuple(msgspec.structs.replace(cell, cache=odd) for cell in grid())
    assert cache_bytes(cells, 3, 100) is None


def test_caches_that_differ_per_position_predict_nothing():
    cells = (grid_cell(1, 64), msgspec.structs.replace(grid_cell(1, 64), cache=cache(1, 96, 2048)))
    assert cache_bytes(cells, 3, 100) is None


def test_the_bytes_of_a_static_cache_are_not_known_and_without_one_there_are_none():
    static = tuple(grid(cache_kind="static"))
    assert cache_bytes(static, 3, 100) is None
    assert cache_bytes(tuple(grid(cache_kind="none")), 3, 100) == 0
