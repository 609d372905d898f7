import msgspec
import pytest
from tests.support.operator_costs import ROOFS, cost, latency, row
from tests.support.records import profile as full_profile

from torchgauge.analyze.gate.limits import judged, parse_limit
from torchgauge.analyze.latency.metrics_by_process import by_process
from torchgauge.analyze.work.bottleneck import step_bottleneck
from torchgauge.analyze.work.utilization import (
    ModelShape,
    StepContents,
    StepTime,
    peak_used,
    products_of,
    utilization,
)
from torchgauge.records.figures import figures
from torchgauge.records.latency.latency import TrainingPhase, TrainingTime
from torchgauge.records.metric import METRICS
from torchgauge.records.record import Interval
from torchgauge.report.content.rulings import allowed

GIGA = 10**9
# A step of two linear products with attention, of which the forward part is computed again.
STEP = msgspec.structs.replace(
    cost(
        row(operator="aten::mm", dtype="bfloat16", matmul_flops=2 * GIGA),
        row(operator="aten::bmm", dtype="bfloat16", matmul_flops=GIGA),
        row(operator="aten::mm", dtype="bfloat16", phase="backward", matmul_flops=4 * GIGA),
        row(operator="aten::mm", dtype="bfloat16", phase="recompute", matmul_flops=2 * GIGA),
        row(operator="aten::mm", dtype="float32", matmul_flops=GIGA),
        row(operator="aten::add", vector_flops=GIGA),
    ),
    backward=True,
)
TIME = StepTime(0.1, Interval(low=0.08, high=0.125))


def used(time=TIME, roofs=ROOFS, **options):
    products = products_of(STEP)
    return utilization(products, time, peak_used(products, None, roofs), **options)


def training(**shares):
    phases = tuple(
        TrainingPhase(name=name, seconds=0.1 * share, share=share) for name, share in shares.items()
    )
    return TrainingTime(step=0.1, phases=phases, clock="host", optimizer="SGD")


def test_mfu_is_the_models_products_over_the_peak_of_most_of_them():
    found = used()
    assert (found.model_flops, found.executed_flops) == (8 * GIGA, 10 * GIGA)
    assert (found.peak.dtype, found.peak.share) == ("bfloat16", 7 / 8)
    assert found.mfu == pytest.approx(8e9 / 0.1 / 200e9)
    assert found.hfu == pytest.approx(10e9 / 0.1 / 200e9)


def test_its_interval_is_that_of_the_time_turned_around():
    found = used()
    assert found.mfu_interval.low == pytest.approx(8e9 / 0.125 / 200e9)
    assert found.mfu_interval.high == pytest.approx(8e9 / 0.08 / 200e9)
    assert found.hfu_interval.high == pytest.approx(10e9 / 0.08 / 200e9)


def test_two_devices_have_twice_the_peak():
    assert used(devices=2).mfu == pytest.approx(used().mfu / 2)


def test_the_datasheet_is_the_peak_before_what_was_measured():
    printed = msgspec.structs.replace(ROOFS, source="datasheet", peaks={"bfloat16": 1e12})
    assert peak_used(products_of(STEP), printed, ROOFS).flops_per_second == 1e12


def test_tf32_is_the_peak_of_float32_that_is_rounded_to_it():
    products = products_of(cost(row(matmul_flops=GIGA)))
    exact, rounded = (
        peak_used(products, None, ROOFS, (rounding, "tf32")) for rounding in ("ieee", "tf32")
    )
    assert (exact.dtype, exact.flops_per_second) == ("float32", 100e9)
    assert (rounded.dtype, rounded.flops_per_second) == ("tf32", 400e9)


def test_without_a_peak_mfu_is_unknown_and_says_why():
    found = used(roofs=None)
    assert (found.mfu, found.hfu, found.mfu_interval) == (None, None, None)
    assert "bfloat16" in found.reason
    assert found.model_flops == 8 * GIGA


def test_without_products_there_is_none():
    products = products_of(cost(row(operator="aten::add", vector_flops=1)))
    assert utilization(products, TIME, None) is None


def test_the_terms_of_the_formula_add_up_to_its_difference():
    shape = ModelShape(parameters=2_000_000, layers=2, width=1000)
    found = used(contents=StepContents(samples=5, tokens=500), shape=shape)
    formula = found.formula
    weights, attention = formula.parts
    assert (formula.name, formula.sequence) == ("6·N + 12·L·h·s", 100)
    assert (weights.formula, weights.counted) == (6 * 2_000_000 * 500, 7 * GIGA)
    assert (attention.formula, attention.counted) == (12 * 2 * 1000 * 100 * 500, GIGA)
    assert weights.difference + attention.difference == formula.flops - found.model_flops
    assert formula.mfu == pytest.approx(formula.flops / 0.1 / 200e9)
    assert weights.reason
    assert attention.reason


def test_a_model_that_tells_no_layers_has_the_formula_without_attention():
    found = used(contents=StepContents(5, 500), shape=ModelShape(2_000_000))
    assert found.formula.name == "6·N"
    assert "without attention" in found.formula.parts[1].reason


def test_without_tokens_there_is_no_formula():
    found = used(contents=StepContents(samples=5), shape=ModelShape(2_000_000))
    assert found.formula is None
    assert (found.samples_per_second, found.tokens_per_second) == (50, None)


def profiled(**changes):
    return msgspec.structs.replace(full_profile(), utilization=used(), **changes)


def test_mfu_is_a_figure_with_its_interval():
    by_name = {figure.name: figure for figure in figures(profiled())}
    assert by_name["mfu"].value == pytest.approx(0.4)
    assert by_name["mfu"].interval.low == pytest.approx(0.32)
    assert by_name["hfu"].value == pytest.approx(0.5)
    assert {figure.name for figure in figures(full_profile())} >= {"mfu", "hfu"}


def test_a_limit_of_mfu_is_a_least_in_percent():
    outcomes = [judged([parse_limit(text)], profiled()).outcome for text in ("mfu:39%", "mfu:41%")]
    assert outcomes == ["pass", "fail"]
    unknown = judged([parse_limit("mfu:39%")], full_profile())
    assert unknown.outcome == "inconclusive"
    assert allowed(unknown.rulings[0]) == "≥ 39.00 %"


def test_mfu_that_lacks_operators_fails_no_least():
    lacking = msgspec.structs.replace(used(), at_least=True)
    verdicts = [
        judged([parse_limit(text)], msgspec.structs.replace(profiled(), utilization=lacking))
        for text in ("mfu:39%", "mfu:41%")
    ]
    assert [verdict.outcome for verdict in verdicts] == ["pass", "inconclusive"]


def test_processes_are_compared_by_the_mfu_of_each():
    record = profiled()
    medians = [run.median for run in record.latency.processes]
    values = by_process(record, METRICS["mfu"])
    assert values == pytest.approx([8e9 / median / 200e9 for median in medians])
    executed = by_process(record, METRICS["hfu"])
    assert executed == pytest.approx([value * 10 / 8 for value in values])


# 10 ms of arithmetic at the peak of float32.
PASSES = msgspec.structs.replace(cost(row(matmul_flops=GIGA, bytes=10**6)), backward=True)


def test_a_step_is_bound_by_what_bounds_its_passes():
    # 0.0125 s of passes in a step of 0.014 s.
    timed = msgspec.structs.replace(
        training(forward=4 / 14, backward=8.5 / 14, optimizer=1.5 / 14), step=0.014
    )
    found = step_bottleneck(PASSES, latency(0.014), timed, ROOFS)
    assert (found.kind, found.confidence) == ("compute", "clear")
    assert found.unexplained == pytest.approx(0.0025)
    assert "89 % of the step of 14.0 ms; the rest: optimizer 11 %" in found.evidence[-1]


def test_a_step_whose_optimizer_takes_a_third_is_less_sure():
    timed = msgspec.structs.replace(
        training(forward=0.25, backward=0.375, optimizer=0.375), step=0.02
    )
    found = step_bottleneck(PASSES, latency(0.02), timed, ROOFS)
    assert (found.kind, found.confidence) == ("compute", "likely")


def test_an_optimizer_that_takes_most_of_a_step_leaves_it_untold():
    timed = training(forward=0.05, backward=0.08, optimizer=0.87)
    found = step_bottleneck(PASSES, latency(0.1), timed, ROOFS)
    assert (found.kind, found.confidence) == (None, "unsure")
    assert "optimizer 87 %" in found.evidence[-1]
