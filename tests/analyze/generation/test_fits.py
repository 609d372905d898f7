"""Fits of cells whose times follow a line that is known, and of those that do not."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.generation_calls import assisted, call
from tests.support.generation_grids import (
    DECODE,
    PREFILL,
    bent,
    cache,
    grid,
    grid_cell,
    prefill_time,
)

from torchgauge.analyze.generation.cells import cell, cells
from torchgauge.analyze.generation.fits import fits, stage_fit
from torchgauge.analyze.generation.predictions import stage_time
from torchgauge.analyze.generation.stage_points import (
    StagePoint,
    decode_points,
    first_token_points,
    line,
    prefill_points,
    unit_rows,
)


def values(fit):
    return [part.value for part in (fit.fixed, fit.per_token, fit.per_context)]


def points(batches, contexts, coefficients, stage="decode", noise=0.0, seed=0, error=0.0):
    draw = np.random.default_rng(seed)
    shapes = [(batch, context) for batch in batches for context in contexts]
    seconds = unit_rows(stage, "dynamic", None, shapes) @ np.array(coefficients)
    seconds *= np.exp(draw.normal(0, noise, len(shapes)))
    return [
        StagePoint(index, *shape, float(time), error)
        for index, (shape, time) in enumerate(zip(shapes, seconds, strict=True))
    ]


def test_the_lines_of_a_grid_are_found_again_exactly():
    prefill, decode = fits(grid())
    assert (prefill.stage, decode.stage) == ("prefill", "decode")
    assert values(prefill) == pytest.approx(PREFILL)
    # The time until the next forward is part of a step.
    assert values(decode) == pytest.approx(DECODE, rel=5e-3)
    assert (prefill.reason, decode.reason) == ("", "")
    assert prefill.spread == pytest.approx(0, abs=1e-9)
    assert len(prefill.cells) == 9
    assert prefill.cells[0][:2] == (1, 64)


def test_the_steps_of_a_call_are_points_at_their_contexts():
    """32 steps after 64 tokens: four points of eight, the first at the contexts 65 to 72."""
    made = decode_points([grid_cell(2, 64)])
    assert [point.context for point in made] == [68, 76, 84, 92]
    assert {point.sequences for point in made} == {2}
    # The middle of an even number of contexts lies half a position beyond its point.
    fixed, per_token, per_context = DECODE
    expected = [fixed + 2 * per_token + 2 * per_context * (p.context + 0.5) for p in made]
    assert [point.seconds for point in made] == pytest.approx(expected)


def test_a_disturbed_step_counts_in_the_level_of_a_cell_and_not_in_its_growth():
    steps = [0.01] * 32
    steps[3] = 0.33
    disturbed = cell(
        [call(prompt=64, steps=tuple(steps), gap=0.0)],
        batch=1, prompt=64, beams=1, cache_kind="dynamic",
    )  # fmt: skip
    assert [point.seconds for point in decode_points([disturbed])] == pytest.approx([0.02] * 4)


@given(
    fixed=st.floats(1e-6, 1.0),
    per_token=st.floats(1e-8, 1e-2),
    per_context=st.floats(1e-10, 1e-4),
    stage=st.sampled_from(["prefill", "decode"]),
)
@settings(max_examples=40, deadline=None)
def test_exact_times_are_predicted_exactly(fixed, per_token, per_context, stage):
    coefficients = (fixed, per_token, per_context)
    fit = stage_fit(stage, "dynamic", points((1, 2, 8), (32, 128, 512), coefficients, stage))
    expected = unit_rows(stage, "dynamic", None, [(4, 300), (16, 2048)]) @ np.array(coefficients)
    assert stage_time(fit, 4, (300, 300)).seconds == pytest.approx(expected[0], rel=1e-4)
    assert stage_time(fit, 16, (2048, 2048)).seconds == pytest.approx(expected[1], rel=1e-2)


@pytest.mark.slow
@given(scale=st.floats(1e-6, 1e6), noise=st.sampled_from([0.0, 0.05, 0.5]), seed=st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_a_clock_of_another_unit_gives_the_same_fit(scale, noise, seed):
    made = points((1, 2, 8), (32, 128, 512), DECODE, noise=noise, seed=seed)
    scaled = [point._replace(seconds=point.seconds * scale) for point in made]
    one, other = stage_fit("decode", "dynamic", made), stage_fit("decode", "dynamic", scaled)
    assert values(other) == pytest.approx([value * scale for value in values(one)], rel=1e-6)
    assert other.spread == pytest.approx(one.spread, rel=1e-6, abs=1e-9)
    held, moved = (stage_time(fit, 4, (200, 200)) for fit in (one, other))
    assert moved.seconds == pytest.approx(held.seconds * scale, rel=1e-6)
    assert moved.interval.high == pytest.approx(held.interval.high * scale, rel=1e-5)


@given(seed=st.integers(0, 200), noise=st.sampled_from([0.05, 0.3, 1.0]))
@settings(max_examples=40, deadline=None)
def test_no_coefficient_is_negative_and_beyond_the_cells_more_takes_longer(seed, noise):
    fit = stage_fit(
        "decode", "dynamic", points((1, 2, 8), (32, 512), DECODE, noise=noise, seed=seed)
    )
    assert min(values(fit)) >= 0
    times = [stage_time(fit, batch, (1024, 1024)).seconds for batch in (1, 2, 3, 8, 9, 64)]
    assert times == sorted(times)
    times = [stage_time(fit, 16, (at, at)).seconds for at in (16, 32, 300, 512, 600, 4096)]
    assert times == sorted(times)


def test_a_coefficient_that_would_be_negative_has_an_interval_from_zero():
    """Times that fall with the context: attention takes nothing that can be seen."""
    falling = [
        point._replace(seconds=(0.01 + 0.001 * point.sequences) * (1 - 0.01 * place))
        for place, point in enumerate(points((1, 2, 4), (10, 20, 30), DECODE))
    ]
    fit = stage_fit("decode", "dynamic", falling)
    assert fit.per_context.value == 0.0
    assert fit.per_context.interval.low == 0.0
    assert fit.per_context.interval.high > 0.0


def test_the_interval_of_a_fit_is_that_of_the_textbook():
    """Relative errors of ±1 % around times of 1 s at four prompts: a mean, s/sqrt(4), t of 3."""
    level = [StagePoint(i, 1, 100, 1.0 + 0.01 * (-1) ** i) for i in range(4)]
    one = line(np.ones((4, 1)), np.array([point.seconds for point in level]), np.ones(4))
    assert one.coefficients[0] == pytest.approx(1.0, rel=1e-3)
    assert one.inverse[0, 0] == pytest.approx(1 / 4, rel=1e-3)


def test_the_spread_counts_cells_and_not_their_steps():
    """One cell of four lies 10 % high in all its steps; freedom is 4 − 3."""
    made = [grid_cell(b, p) for b in (1, 4) for p in (64, 512)]
    odd = grid_cell(4, 512, factor=lambda batch, context: 1.1)
    fit = fits([*made[:-1], odd])[1]
    assert fit.quantile == pytest.approx(12.7062, rel=1e-4)
    assert len(fit.cells) == 16
    seconds = np.array([shape[2] for shape in fit.cells])
    rows = unit_rows("decode", "dynamic", None, [shape[:2] for shape in fit.cells])
    residuals = np.log(seconds / (rows @ values(fit))).reshape(4, 4).mean(axis=1)
    assert fit.spread == pytest.approx(math.sqrt(float(residuals @ residuals)))


def test_cells_on_a_line_by_luck_are_no_surer_than_their_calls():
    fit = stage_fit("decode", "dynamic", points((1, 2, 8), (32, 128, 512), DECODE, error=0.05))
    assert fit.spread == pytest.approx(0.05)


def test_a_cell_of_many_points_counts_once():
    """Of one shape 1 s is measured at one point, and 2 s at four: the line lies between them."""
    apart = [StagePoint(0, 1, 100, 1.0), *[StagePoint(1, 1, 100, 2.0)] * 4]
    fit = stage_fit("decode", "dynamic", [*apart, StagePoint(2, 1, 200, 1.5)])
    at_shape = float((unit_rows("decode", "dynamic", None, [(1, 100)]) @ values(fit))[0])
    # Relative squares: (1 − y)² + (2 − y)² over y² is least at (1² + 2²) ÷ (1 + 2).
    assert at_shape < 1.7


def test_the_error_of_a_cell_is_that_of_the_median_of_its_calls():
    """Logarithms 0, ±0.1: s = 0.1, sqrt(π/2) · s / sqrt(3)."""
    times = [math.exp(-0.1), 1.0, math.exp(0.1)]
    shape = {"batch": 1, "prompt": 100, "beams": 1, "cache_kind": "dynamic"}
    noisy = cell([call(prefill=time, setup=0.0, gap=0.0) for time in times], **shape)
    (prefill,) = prefill_points([noisy])
    assert prefill.error == pytest.approx(1.2533141 * 0.1 / math.sqrt(3))
    assert first_token_points([noisy])[0].error == pytest.approx(prefill.error)
    assert prefill_points([cell([call()] * 2, **shape)])[0].error == 0.0


def test_beyond_the_cells_the_interval_is_that_of_cells_left_out_at_their_end():
    """The most sequences lie 20 % above the line through the others, which is exact."""
    made = points((1, 2, 4, 8), (64, 256, 1024), DECODE)
    bent_end = [
        point._replace(seconds=point.seconds * (1.2 if point.sequences == 8 else 1.0))
        for point in made
    ]
    fit = stage_fit("decode", "dynamic", bent_end)
    assert fit.extrapolated > 0.1
    assert fit.extrapolated > 1.3 * fit.spread
    inside, outside = (stage_time(fit, batch, (256, 256)) for batch in (4, 9))
    widths = [time.interval.high / time.seconds for time in (inside, outside)]
    assert widths[1] ** (1 / fit.quantile) >= math.exp(fit.extrapolated)
    assert widths[0] < widths[1]
    short = stage_fit("decode", "dynamic", points((1, 8), (64, 256), DECODE))
    assert short.extrapolated is None


def test_the_line_itself_is_less_certain_far_from_the_cells():
    """The textbook's: s² of a measurement and x·C·x of the line, relative to it."""
    made = points((1, 2, 4), (64, 256, 1024), DECODE, noise=0.05, seed=4)
    fit = msgspec.structs.replace(
        stage_fit("decode", "dynamic", made), interpolated=None, extrapolated=None
    )
    for batch, context in ((2, 256), (64, 1024)):
        row = unit_rows("decode", "dynamic", None, [(batch, context)])[0]
        variance = float(row @ np.array(fit.covariance) @ row) / float(row @ values(fit)) ** 2
        predicted = stage_time(fit, batch, (context, context))
        reach = math.log(predicted.interval.high / predicted.seconds)
        assert reach == pytest.approx(fit.quantile * math.sqrt(fit.spread**2 + variance))


def test_one_disturbed_cell_does_not_turn_the_line_and_is_reported():
    made = points((1, 2, 4, 8), (64, 256, 1024), PREFILL, "prefill", noise=0.002)
    made[5] = made[5]._replace(seconds=made[5].seconds * 2)
    fit = stage_fit("prefill", "dynamic", made)
    assert values(fit)[1] == pytest.approx(PREFILL[1], rel=0.03)
    assert fit.reason.startswith("2 sequences with 1,024 positions lie ")
    assert fit.reason.endswith(" above the fit")
    # Its error is in the spread all the same: another cell may be disturbed as well.
    assert fit.spread > 0.15


def test_too_few_cells_have_no_interval_and_say_what_to_measure():
    fit = fits(grid((1,), (64, 256)))[0]
    assert fit.quantile is None
    assert fit.interpolated is None
    assert fit.fixed.interval is None
    assert "2 cells do not show" in fit.reason
    assert "--prompt 128,512" in fit.reason
    assert "--batch 1,4" in fit.reason
    assert [fit.stage for fit in fits(grid((1,), (64,)))] == ["decode"]  # by its own contexts
    assert fits([]) == ()


def test_what_one_batch_does_not_tell_apart_is_in_the_fixed_time():
    decode = fits(grid((2,), (64, 128, 512, 1024)))[1]
    fixed, per_token, per_context = DECODE
    assert decode.fixed.value == pytest.approx(fixed + 2 * per_token, rel=5e-3)
    assert (decode.per_token.value, decode.per_token.interval) == (0.0, None)
    assert decode.per_context.value == pytest.approx(per_context, rel=5e-3)


def test_a_bend_is_interpolated_between_cells():
    sizes = (1, 2, 4, 8), (64, 128, 256, 512, 1024)
    prefill, decode = fits(grid(*sizes, factor=bent))
    assert prefill.interpolated < prefill.spread
    line_alone = msgspec.structs.replace(prefill, interpolated=None)
    between = [(3, 96), (3, 384), (3, 768), (6, 96), (6, 384), (6, 768)]

    def error(fit):
        return sum(
            abs(
                stage_time(fit, batch, (at, at)).seconds / prefill_time(batch, at) / bent(batch, at)
                - 1
            )
            for batch, at in between
        )

    assert error(prefill) < 0.75 * error(line_alone)
    assert decode.interpolated < decode.spread
    straight = fits(grid(*sizes))[0]
    assert straight.interpolated is None


def test_noise_is_not_interpolated():
    """What differs without order is nearest to the line."""
    taken = [
        stage_fit(
            "decode",
            "dynamic",
            points((1, 2, 4, 8), (64, 256, 1024), DECODE, noise=0.05, seed=seed),
        )
        for seed in range(20)
    ]
    assert sum(fit.interpolated is not None for fit in taken) <= 4


def test_each_kind_of_cache_has_fits_of_its_own():
    static = [grid_cell(b, p, cache_kind="static", scale=2.0) for b in (1, 4) for p in (64, 256)]
    made = fits([*grid(), *static])
    assert [(fit.stage, fit.cache_kind) for fit in made] == [
        ("prefill", "dynamic"), ("decode", "dynamic"), ("prefill", "static"), ("decode", "static"),
    ]  # fmt: skip
    assert made[3].fixed.value == pytest.approx(2 * DECODE[0])


def test_calls_with_an_assistant_and_with_more_beams_are_in_no_fit():
    drafted = cells([assisted((3,) * 9, step=5.0)])
    beams = [grid_cell(1, 128, beams=4, scale=50.0)]
    assert fits([*grid(), *drafted, *beams]) == fits(grid())


def test_without_a_cache_a_step_computes_all_positions():
    rows = unit_rows("decode", "none", None, [(2, 10)])
    assert rows.tolist() == [[1, 20, 110]]
    assert unit_rows("decode", "dynamic", None, [(2, 10)]).tolist() == [[1, 2, 20]]


def test_a_window_bounds_what_is_attended_to():
    """Prompt 6, window 4: 1 + 2 + 3 + 4 + 4 + 4 pairs."""
    assert unit_rows("prefill", "dynamic", 4, [(1, 6)]).tolist() == [[1, 6, 18]]
    assert unit_rows("decode", "dynamic", 4, [(3, 6), (3, 2)]).tolist() == [[1, 3, 12], [1, 3, 6]]
    windowed = [
        msgspec.structs.replace(made, cache=msgspec.structs.replace(cache(1, 90), window=40))
        for made in grid()
    ]
    assert {fit.window for fit in fits(windowed)} == {40}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "noise", "drift", "bend"),
    [("prefill", 0.1, 0.0, False), ("decode", 0.05, 0.1, True), ("prefill", 0.05, 0.1, True)],
)
def test_shapes_that_were_not_measured_lie_in_their_intervals(stage, noise, drift, bend):
    """40 sessions of 12 cells, each with 6 shapes left out: at least 93 %, and errors of noise."""
    draw = np.random.default_rng(3)
    held, errors = [], []
    shapes = [(b, c) for b in (1, 2, 3, 4, 8) for c in (64, 128, 256, 512, 1024)]
    truth = unit_rows(stage, "dynamic", None, shapes) @ np.array(
        PREFILL if stage == "prefill" else DECODE
    )
    truth *= [bent(*shape) if bend else 1.0 for shape in shapes]
    for _ in range(40):
        rounds = np.exp(np.cumsum(draw.normal(0, drift, 5)))[:, None]
        calls = truth * rounds * np.exp(draw.normal(0, noise, (5, len(shapes))))
        times = np.median(calls, axis=0)
        error = float(np.log(calls).std(axis=0, ddof=1).mean()) * 1.25 / 5**0.5
        made = [
            StagePoint(index, *shape, float(times[index]), error)
            for index, shape in enumerate(shapes)
            if shape[0] != 3 and shape[1] not in (128, 512)
        ]
        fit = stage_fit(stage, "dynamic", made)
        for index, (batch, context) in enumerate(shapes):
            if batch == 3 or context in (128, 512):
                predicted = stage_time(fit, batch, (context, context))
                low, high = predicted.interval.low, predicted.interval.high
                held.append(low <= times[index] <= high)
                errors.append(abs(predicted.seconds / times[index] - 1))
    assert np.mean(held) >= 0.93
    assert np.median(errors) <= 0.06
