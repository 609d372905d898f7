import msgspec
import pytest
from tests.support.operator_costs import MIB, ROOFS, cost, latency, row

from torchgauge.analyze.work.bottleneck import bottleneck, contradicted

# 10 ms of arithmetic at the peak.
PRODUCT = cost(row(matmul_flops=10**9, bytes=10**6))
# 26.8 ms of memory traffic.
STREAM = cost(row(operator="aten::add", vector_flops=MIB, bytes=256 * MIB))
# 200 layers of two calls: 0.8 ms at 2 µs each, next to no work.
TINY = cost(row(calls=400, matmul_flops=200 * 128, bytes=200 * 400))


def answer(made, seconds, roofs=ROOFS, **interval):
    found = bottleneck(made, latency(seconds, **interval), roofs)
    return found.kind, found.confidence


def test_a_product_near_its_peak_waits_for_arithmetic():
    assert answer(PRODUCT, 0.0125) == ("compute", "clear")


def test_a_stream_near_the_bandwidth_waits_for_memory():
    assert answer(STREAM, 0.03) == ("memory", "clear")


def test_many_tiny_layers_wait_for_dispatch():
    assert answer(TINY, 0.001) == ("overhead", "clear")


def test_the_three_times_are_those_computed_by_hand():
    made = cost(
        row(matmul_flops=10**9, bytes=10**6),
        row(operator="aten::relu", vector_flops=10**6, bytes=8 * 10**6),
    )
    found = bottleneck(made, latency(0.0125), ROOFS)
    assert found.compute_time == pytest.approx(0.01)
    assert found.memory_time == pytest.approx(8e-5)
    assert found.unexplained == pytest.approx(0.0125 - 0.01008)
    assert "Of 12.5 ms measured" in found.evidence[0]
    assert any("2 operator calls at the 2.00 µs" in line for line in found.evidence)


def test_dispatch_that_cannot_take_the_time_is_not_blamed():
    # A fifth of the peak, in a single call: a slow kernel, not overhead.
    assert answer(PRODUCT, 0.05) == ("compute", "unsure")
    assert answer(PRODUCT, 0.03) == ("compute", "likely")


def test_what_roofs_and_dispatch_hardly_explain_is_not_called_by_the_nearer_roof():
    assert answer(PRODUCT, 0.11) == (None, "unsure")  # 9 %, in a single call
    assert answer(PRODUCT, 10e-3 / 0.0015) == (None, "unsure")
    found = bottleneck(PRODUCT, latency(0.11), ROOFS)
    assert found.compute_time == pytest.approx(0.01)  # the figures are there all the same
    assert any("explained by neither" in line for line in found.evidence)


def test_unknown_operators_may_be_what_takes_the_rest():
    made = cost(*PRODUCT.rows, row(operator="my::op", has_formula=False))
    assert answer(made, 0.03) == (None, "unsure")
    many = cost(
        row(calls=100, matmul_flops=10**9, bytes=10**6), row(operator="x", has_formula=False)
    )
    assert answer(many, 0.03) == ("compute", "unsure")


def test_a_machine_that_does_more_than_its_disturbed_roofs_bounds_nothing():
    busy = msgspec.structs.replace(ROOFS, quality="busy", other=1.5)
    found = bottleneck(PRODUCT, latency(0.005), busy)
    assert (found.kind, found.compute_time) == (None, None)
    assert "far too low" in found.evidence[0]
    assert "1.50 cores" in found.evidence[1]
    assert contradicted(PRODUCT, 0.005, busy)
    assert not contradicted(PRODUCT, 0.005, ROOFS)
    assert answer(PRODUCT, 0.0125, busy) == ("compute", "likely")


def test_two_roofs_that_share_the_time_are_no_clear_case():
    both = cost(
        row(matmul_flops=10**9, bytes=10**6),
        row(operator="aten::add", vector_flops=MIB, bytes=80 * 10**6 * 10, calls=100),
    )
    assert answer(both, 0.02) == ("compute", "unsure")


def test_a_bound_above_the_measured_time_is_not_believed():
    assert answer(PRODUCT, 0.005) == ("compute", "unsure")


def test_an_unknown_operator_makes_it_less_sure():
    made = cost(*PRODUCT.rows, row(operator="my::op", has_formula=False))
    found = bottleneck(made, latency(0.0125), ROOFS)
    assert (found.kind, found.confidence) == ("compute", "likely")
    assert any("my::op ×1" in line for line in found.evidence)


def test_datasheet_roofs_make_it_less_sure():
    roofs = msgspec.structs.replace(ROOFS, source="datasheet", dispatch=None)
    assert answer(PRODUCT, 0.0125, roofs) == ("compute", "likely")
    assert answer(TINY, 0.003, roofs) == ("overhead", "likely")


def test_roofs_measured_beside_other_work_make_it_less_sure():
    found = bottleneck(PRODUCT, latency(0.0125), msgspec.structs.replace(ROOFS, other=1.5))
    assert (found.kind, found.confidence) == ("compute", "likely")
    assert any("1.50 cores" in line for line in found.evidence)


def test_a_dtype_without_a_peak_makes_it_less_sure_and_is_named():
    made = cost(*PRODUCT.rows, row(dtype="float64", matmul_flops=10**6, bytes=100))
    found = bottleneck(made, latency(0.0125), ROOFS)
    assert (found.kind, found.confidence) == ("compute", "likely")
    assert any("float64" in line for line in found.evidence)


def test_an_interval_that_reaches_into_another_answer_makes_it_less_sure():
    made = cost(row(calls=1000, matmul_flops=10**9, bytes=10**6))
    assert answer(made, 0.015) == ("compute", "clear")
    # At 25 ms less than half is explained, and 2 ms of dispatch plausibly are part of the rest.
    assert answer(made, 0.015, low=0.014, high=0.016) == ("compute", "clear")
    assert answer(made, 0.015, low=0.014, high=0.0225) == ("compute", "likely")


def test_without_roofs_nothing_is_said():
    found = bottleneck(PRODUCT, latency(0.01), None)
    assert (found.kind, found.confidence) == (None, "unsure")
    assert found.compute_time is found.memory_time is found.unexplained is None
    assert "roofs" in found.evidence[0]


def test_with_most_operators_unknown_nothing_is_said():
    made = cost(*PRODUCT.rows, row(operator="my::op", calls=9, has_formula=False))
    found = bottleneck(made, latency(0.0125), ROOFS)
    assert found.kind is None
    assert "90 %" in found.evidence[0]


@pytest.mark.parametrize(("made", "seconds"), [(cost(), 0.01), (PRODUCT, 0.0)])
def test_nothing_counted_or_timed(made, seconds):
    assert answer(made, seconds) == (None, "unsure")
