"""Sums over the steps of a training, against arithmetic by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.analyze.loop.training_totals import Step, TrainingTotals, mean, summed
from torchgauge.analyze.work.utilization import ModelShape, Products
from torchgauge.records.work.utilization import PeakUsed

PEAK = PeakUsed(device="a", dtype="float32", flops_per_second=1e9, source="measured")


def products(model, executed: int | None = None, dtype="float32"):
    return Products(model, model if executed is None else executed, {dtype: model})


def test_rates_and_utilization_are_ratios_of_sums():
    totals = TrainingTotals()
    # 10 ms with 2 MFLOP and 30 ms with 10 MFLOP: 12 MFLOP in 40 ms of a device of 1 GFLOP/s.
    totals.add(Step(10_000_000, 1_000_000, 2, 4, 40, products(2_000_000, 3_000_000)))
    totals.add(Step(30_000_000, 3_000_000, 2, 2, 20, products(10_000_000, 13_000_000)))
    figures = totals.figures(PEAK)
    assert figures == pytest.approx(
        {
            "step_time": 0.02,
            "data_wait": 0.1,
            "tokens_per_second": 60 / 0.04,
            "samples_per_second": 6 / 0.04,
            "mfu": 0.3,
            "hfu": 0.4,
        }
    )


def test_a_step_whose_flops_are_unknown_is_in_no_utilization():
    totals = TrainingTotals()
    totals.add(Step(10_000_000, products=products(2_000_000)))
    totals.add(Step(70_000_000))
    used = totals.utilization(PEAK)
    assert used is not None
    assert used.mfu == pytest.approx(0.2)
    assert used.seconds == pytest.approx(0.01)
    assert (totals.counted, totals.steps) == (1, 2)


def test_what_a_batch_does_not_say_stays_unknown():
    totals = TrainingTotals()
    totals.add(Step(10_000_000, samples=4, tokens=None))
    totals.add(Step(10_000_000, samples=4, tokens=8))
    assert totals.tokens is None
    assert "tokens_per_second" not in totals.figures(PEAK)
    assert totals.figures(PEAK)["samples_per_second"] == pytest.approx(400)


def test_without_steps_or_a_peak_nothing_is_claimed():
    totals = TrainingTotals()
    assert totals.figures(PEAK) == {}
    assert totals.utilization(PEAK) is None
    totals.add(Step(10_000_000, products=products(2_000_000)))
    used = totals.utilization(None)
    assert used is not None
    assert used.mfu is None
    assert "no peak" in used.reason


def test_the_field_s_formula_is_given_where_all_steps_hold_as_much():
    shape = ModelShape(parameters=100)
    totals = TrainingTotals()
    for _ in range(2):
        totals.add(Step(10_000_000, 0, 1, 2, 10, products(6_000)))
    used = totals.utilization(PEAK, shape)
    assert used is not None
    assert used.formula is not None
    assert used.formula.flops == 6 * 100 * 10
    totals.add(Step(10_000_000, 0, 1, 2, 9, products(5_400)))
    other = totals.utilization(PEAK, shape)
    assert other is not None
    assert other.formula is None


@given(st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 10**12)), min_size=1, max_size=9))
def test_products_of_parts_add_up(pairs):
    parts = [products(model, model + again, f"d{model % 2}") for model, again in pairs]
    total = summed(parts)
    assert total.model == sum(part.model for part in parts) == sum(total.by_dtype.values())
    assert total.executed == sum(part.executed for part in parts)
    assert mean(summed(parts * 3), 3 * len(parts)) == mean(total, len(parts))
