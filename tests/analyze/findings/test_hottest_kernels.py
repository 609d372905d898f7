"""The kernels that take most of a recording's time, and how near they are to what bounds them."""

import pytest
from tests.support.findings import H100, Steps, finding, rank
from tests.support.kineto_events import op, read

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.device.roofs import peaks

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
SQUARE = [[4096, 4096], [4096, 4096]]  # 2 · 4096³ FLOP take 139 µs at 989 TFLOP/s
BF16 = {"Input type": ["c10::BFloat16", "c10::BFloat16"]}


def hottest(steps):
    events = read(*steps.parts, devices=(H100,))
    return finding(rank_trace(events, "made.json", roofs=peaks.find("h100"))[0], "hottest-kernels")


def test_the_kernels_that_take_at_least_half_are_named():
    steps = Steps().run("aten::a", [("first", 50), ("second", 30), ("third", 9), ("fourth", 11)])
    found = finding(steps.record(), "hottest-kernels")
    assert found.title == "3 kernels take 91 % of the time of device work"
    assert "first 50 %, second 30 %, fourth 11 %" in found.evidence
    assert found.time == pytest.approx(91e-6)
    assert found.remedy.startswith("Record with record_shapes=True")


def test_where_no_few_kernels_take_half_the_category_is_named():
    steps = Steps().run("aten::a", [(f"void cudnn::conv{n}_fprop", 9) for n in range(10)])
    steps.run("aten::b", [("void at::native::elementwise_kernel<4>", 10)])
    found = finding(steps.record(), "hottest-kernels")
    assert found.title == "Convolution takes 90 % of the time of device work"


@pytest.mark.parametrize(
    ("duration", "reached", "remedy"),
    [(278, "50 % of the peak", "At the peak it would take 139"), (154, "90 %", "Only less work")],
)
def test_the_share_of_the_peak_is_said(duration, reached, remedy):
    found = hottest(Steps().run("aten::mm", [(GEMM, duration)], SQUARE, **BF16))
    assert reached in found.evidence
    assert found.remedy.startswith(remedy)


def test_a_rate_of_less_than_half_of_the_time_is_not_said():
    steps = Steps().run("aten::mm", [(GEMM, 278)], SQUARE, **BF16)
    steps.run("my::product", [(GEMM, 400)], SQUARE, **BF16)
    found = hottest(steps)
    assert "is unknown: its work is known for 41 % of its time" in found.evidence
    assert not found.remedy


def test_of_a_recording_of_the_host_the_operator_that_takes_most_is_named():
    found = finding(
        rank(op("aten::mm", 0, 30), op("aten::add", 40, 10), devices=()), "hottest-operator"
    )
    assert found.title.startswith("aten::mm takes")
    on_device = Steps().run("aten::mm", [(GEMM, 278)], SQUARE).record()
    assert finding(on_device, "hottest-operator") is None
