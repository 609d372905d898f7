"""Fits against lines known beforehand, and what they say of points that lie on none."""

import math

import msgspec
import numpy as np
import pytest
from tests.support import sweeps

from torchgauge.analyze.sweep.scaling import Point, fit, largest_batch, scaling, scaling_of

BATCHES = (1, 2, 4, 8, 16, 32)


def points(noise=0.0, batches=BATCHES, seed=0, error=0.0):
    draw = np.random.default_rng(seed)
    return [Point(b, (2e-3 + 1e-3 * b) * math.exp(draw.normal(0, noise)), error) for b in batches]


def test_a_line_is_found_again_exactly():
    found = fit(points())
    assert (found.fixed, found.marginal) == (pytest.approx(2e-3), pytest.approx(1e-3))
    assert found.is_linear
    assert found.reason == ""
    assert found.predict(12).value == pytest.approx(14e-3)
    assert found.predict(12).interval.half_width == pytest.approx(0, abs=1e-12)
    assert not found.predict(12).extrapolated
    assert found.predict(64).extrapolated


def test_the_interval_of_an_even_fit_is_that_of_the_textbook():
    """y = 1, 2, 2 at x = 0, 1, 2: equal weights need equal values, so y is moved far up."""
    high = 1e6
    found = fit([Point(1, high + 1), Point(2, high + 2), Point(3, high + 2)])
    # Least squares: slope 0.5; residuals −1/6, 1/3, −1/6; s² = 1/6; se(slope) = sqrt(s²/2).
    assert found.marginal == pytest.approx(0.5, rel=1e-4)
    half = 12.7062 * math.sqrt(1 / 6 / 2)
    assert found.marginal_interval.half_width == pytest.approx(half, rel=1e-3)
    # A new observation at the mean of x: s² · (1 + 1/3).
    assert found.predict(2).interval.half_width == pytest.approx(
        12.7062 * math.sqrt(1 / 6 * 4 / 3), rel=1e-3
    )


@pytest.mark.parametrize(("times", "said"), [(3, "above"), (1 / 3, "below")])
def test_one_disturbed_cell_does_not_turn_the_line(times, said):
    disturbed = [
        point._replace(value=point.value * times) if point.batch == 4 else point
        for point in points(noise=0.002, batches=(1, 2, 4, 6, 8, 12, 16, 24, 32))
    ]
    found = fit(disturbed)
    assert found.marginal == pytest.approx(1e-3, rel=0.02)
    assert found.fixed == pytest.approx(2e-3, rel=0.02)
    assert not found.is_linear
    assert found.reason.startswith("batch 4 lies ")
    assert found.reason.endswith(f"{said} the line")


def test_what_steps_up_is_no_line():
    steps = [Point(b, 1e-3 * math.ceil(b / 16)) for b in (1, 4, 16, 17, 32, 33, 48)]
    assert not fit(steps).is_linear


def test_two_points_have_no_interval_and_prove_nothing():
    found = fit(points(batches=(1, 4)))
    assert found.value_at(8) == pytest.approx(10e-3)
    assert found.predict(8).interval is None
    assert not found.is_linear
    assert "third" in found.reason


def test_nothing_is_fitted_to_one_batch_or_to_nothing():
    assert fit([]) is None
    assert fit([Point(1, 1.0), Point(1, 2.0)]) is None
    assert fit([Point(1, 0.0), Point(2, 1.0)]) is None


def test_a_cost_that_is_not_told_from_none_is_said():
    flat = [Point(b, 1e-3 * (1 + 0.02 * (-1) ** i)) for i, b in enumerate((1, 2, 3, 4))]
    found = fit(flat)
    assert not found.is_linear
    assert "not significantly above 0" in found.reason


def test_the_points_own_error_is_the_least_that_a_prediction_has():
    sure, unsure = fit(points()), fit(points(error=0.05))
    some = [*points(error=0.05)[:-1], points(error=None)[-1]]
    assert fit(some).spread == unsure.spread  # not known is not none
    at = unsure.predict(8)
    assert at.interval.half_width > 2 * 0.05 * at.value  # t > 2
    assert sure.predict(8).interval.half_width < at.interval.half_width


def test_prediction_intervals_hold_a_left_out_batch_as_often_as_they_say():
    held = 0
    for seed in range(400):
        found = fit(points(noise=0.02, batches=(1, 2, 4, 16, 32), seed=seed))
        new = 10e-3 * math.exp(np.random.default_rng(10_000 + seed).normal(0, 0.02))
        interval = found.predict(8).interval
        held += interval.low <= new <= interval.high
    assert 0.92 <= held / 400 <= 0.98


def test_a_row_says_what_fits():
    row = [sweeps.cell(b, 0.001 * b, 1000 + 500 * b, overhead=1000, capacity=10_000)
           for b in (1, 2, 4)]  # fmt: skip
    found = scaling_of([*row, sweeps.ended("out of memory", batch=32)])
    assert found.memory.value_at(10) == pytest.approx(6000)
    assert found.largest == 16  # 1000 beyond the tensors + 1000 + 500 × 16 are 10,000
    assert found.largest_done == 4
    assert found.smallest_failed == 32
    assert largest_batch(None, 10, 0) is None
    assert largest_batch(found.memory, None, 0) is None
    assert largest_batch(found.memory, 500, 1000) == 0
    rounding = fit([Point(batch, 20.0 + 1e-12 * batch) for batch in (1, 2, 4)])
    assert largest_batch(rounding, 10_000, 0) is None  # not up to batch 10^16


def test_a_program_that_was_exported_has_no_batch_beyond_those_measured():
    row = [sweeps.cell(b, 0.001 * b, 1000 + 500 * b, capacity=10_000) for b in (1, 2, 4)]
    target = msgspec.structs.replace(row[0].target, kind="executorch")
    program = [msgspec.structs.replace(cell, target=target) for cell in row]
    assert scaling_of(row).largest == 18
    assert scaling_of(program).largest is None  # its memory is planned for the largest it takes


def test_rows_are_cells_that_share_all_but_the_batch():
    cells = [sweeps.cell(b, precision=p) for b in (1, 2) for p in ("fp32", "bf16")]
    found = scaling([*cells, sweeps.cell(1, precision="fp16")])
    assert [one.settings.precision for one in found] == ["fp32", "bf16"]
